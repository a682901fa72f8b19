"""What the command and a console both show, as values: jobs, pools, workers, events in a line."""
