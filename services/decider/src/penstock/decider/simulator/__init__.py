"""The simulator: the production core against an arrival trace, in simulated time."""
