"""What stands around the runs of jobs: middleware, semaphores, rate limits, exclusive queues."""
