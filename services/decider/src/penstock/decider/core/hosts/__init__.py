"""Hosts of a round: which are alive, what each can carry, and which workers go where."""
