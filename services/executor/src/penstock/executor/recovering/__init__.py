"""What happens to the jobs of workers that died, hang or make no progress."""
