"""The worker's share of the host's Spark: a lease on its server, one session, what it costs."""
