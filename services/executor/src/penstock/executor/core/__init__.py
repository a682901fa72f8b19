"""Deciding what to do on one host: stimuli in, instructions out; no clock and no I/O inside."""
