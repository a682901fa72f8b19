"""Follows batches and graphs to their end."""
