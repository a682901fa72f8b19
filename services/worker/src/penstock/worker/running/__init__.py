"""The job's own thread, what a job sees there, and how its end is recorded."""
