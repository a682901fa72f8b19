"""Pure measuring: what the metrics service and the simulator both work out, by the same code."""
