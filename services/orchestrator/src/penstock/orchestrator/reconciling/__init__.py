"""Completes job transitions that a crash cut in half."""
