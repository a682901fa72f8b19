"""The data pipeline: a NATS JetStream data source for PySpark, and the lake made with it."""
