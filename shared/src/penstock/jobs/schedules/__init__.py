"""Schedules: jobs dispatched again and again, by a cron expression."""
