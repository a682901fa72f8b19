"""From a call to a job that the broker holds: its first event, checks, and sending."""
