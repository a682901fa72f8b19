"""What the decider publishes: decisions, commands, records of rounds, and their spans."""
