"""Hooks: jobs, requests and commands that are run when jobs fail or end."""
