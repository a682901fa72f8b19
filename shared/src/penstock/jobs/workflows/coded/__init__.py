"""Workflows as coroutines: what their code may await, what it recorded, and how it is run."""
