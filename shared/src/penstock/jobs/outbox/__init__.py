"""Dispatching while the broker is away: fail, wait, or keep jobs in a local file."""
