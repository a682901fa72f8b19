"""Rows that are folded from the event log and kept in SQLite, and the present state in memory."""
