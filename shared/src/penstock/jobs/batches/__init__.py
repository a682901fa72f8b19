"""Batches: jobs that are counted together, with callbacks at their end."""
