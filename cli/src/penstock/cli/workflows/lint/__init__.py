"""Reads the source of coded workflows for what would not be the same each time that it runs."""
