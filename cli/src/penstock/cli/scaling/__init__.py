"""Pools and their workers: decisions explained, replayed, simulated, tuned."""
