"""The console: what an installation does, as web pages and an HTTP API."""
