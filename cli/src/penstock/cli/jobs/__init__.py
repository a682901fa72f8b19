"""Jobs: submit, list, show, cancel, retry; batches, queues, schedules, dead letters."""
