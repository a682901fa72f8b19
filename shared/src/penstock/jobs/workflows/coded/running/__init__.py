"""Runs the code of a workflow through its memo, and on to what it waits for."""
