"""Alerts: rules, their states, and who is notified. Pure."""
