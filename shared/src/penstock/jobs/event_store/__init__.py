"""Event sourcing for jobs, batches and graphs: events, records, and changes by compare-and-set."""
