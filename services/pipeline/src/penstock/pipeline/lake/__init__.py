"""The lake: its tables and rollups, and the right to write to them."""
