"""Policies: hooks around a decision. They may hold its number, limit it, or publish events."""
