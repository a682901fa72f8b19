"""Pages of alerts: what fires, rules with their form, channels, silences."""
