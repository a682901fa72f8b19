"""JetStream for Spark: blocking connections, ranges of messages, and the sinks."""
