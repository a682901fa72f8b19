"""Workflows in a worker: reading their records, running advances, recording suspensions."""
