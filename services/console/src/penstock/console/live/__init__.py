"""Server-sent events: what changed, to every page that is open."""
