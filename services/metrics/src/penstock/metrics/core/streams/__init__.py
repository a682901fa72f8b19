"""Streaming queries as the source of a pool of Spark Workers, as values."""
