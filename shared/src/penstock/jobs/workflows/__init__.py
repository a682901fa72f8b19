"""Chains and graphs: jobs that wait for each other."""
