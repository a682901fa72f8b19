"""The promises of the event log as rules: histories in, violations out. Pure."""
