"""Durable workflows that wait: followed by their events, woken, and settled where in doubt."""
