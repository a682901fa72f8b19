"""What every request passes through: checks, credentials, problems, caching."""
