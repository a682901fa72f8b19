"""Workflows, coded and declared, and graphs: run, list, show, change, check, replay."""
