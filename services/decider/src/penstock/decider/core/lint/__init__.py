"""The linter: promises that cannot hold, and settings that do not do what was hoped for."""
