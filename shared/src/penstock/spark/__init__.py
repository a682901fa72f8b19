"""Spark from outside: its Java, its class archives, a Master's JSON, addresses and tags."""
