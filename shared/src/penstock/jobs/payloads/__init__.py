"""The encoded call: its format, its encryption, and how it is shown."""
