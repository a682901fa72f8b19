"""The host: its resources, its control groups, the lock of its one executor."""
