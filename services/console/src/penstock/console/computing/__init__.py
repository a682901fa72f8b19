"""What only the decider's code can answer: the console runs `penstock … --json` for it."""
