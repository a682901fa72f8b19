"""Strategies for Penstock, one a module."""
