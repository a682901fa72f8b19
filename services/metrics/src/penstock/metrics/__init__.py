"""See `app`."""
