"""Pages of workflows, their definitions, batches and schedules."""
