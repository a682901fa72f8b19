"""Endpoints that act: one module for each thing that is acted on."""
