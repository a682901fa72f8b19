"""Queues: the messages in them, pausing them, and which of them hold jobs."""
