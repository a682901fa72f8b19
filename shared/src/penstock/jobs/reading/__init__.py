"""Reading jobs: lists of them, one by the beginning of its id, and what they wrote."""
