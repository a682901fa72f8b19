"""Studies: strategies compared, tuned and drawn over recorded loads."""
