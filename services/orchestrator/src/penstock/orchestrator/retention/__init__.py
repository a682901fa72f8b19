"""Keeps the event log within its limit, without loss of what has not ended."""
