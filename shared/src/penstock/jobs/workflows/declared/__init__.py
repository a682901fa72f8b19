"""Declared workflows: named, versioned definitions, and what follows from how steps ended."""
