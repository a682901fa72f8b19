"""Processes: services, children, the broker and Java where this machine has to provide them."""
