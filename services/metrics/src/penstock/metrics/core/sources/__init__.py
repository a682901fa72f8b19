"""Queues of other systems: what was seen of them, and what can be worked out of it. Pure."""
