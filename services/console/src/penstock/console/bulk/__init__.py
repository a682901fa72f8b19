"""Bulk actions: one act on many jobs, workflows, batches or graphs, by a console that leads."""
