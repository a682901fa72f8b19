"""Spark on this host: the shared session server, the standalone cluster, and what they leave."""
