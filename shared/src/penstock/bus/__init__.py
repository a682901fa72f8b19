"""The broker: what is asked of it (`protocol`), over NATS (`nats`), and in memory (`memory`)."""
