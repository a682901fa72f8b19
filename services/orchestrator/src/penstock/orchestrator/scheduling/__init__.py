"""The schedules of recurring jobs, and the broker's schedules of delayed jobs."""
