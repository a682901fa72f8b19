"""Bulk actions: what may be done to what, which are meant, and how far each action is. Pure."""
