"""From a queue message to a claimed job, and back where it cannot run here."""
