"""Jobs: submit, list, show, cancel, retry; batches, graphs, queues, schedules, dead letters."""
