"""Alerts outside the pure core: who leads, what is stored, and how messages are sent."""
