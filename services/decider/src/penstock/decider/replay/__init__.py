"""Recomputes what was decided from the log, and proves it equal or shows the difference."""
