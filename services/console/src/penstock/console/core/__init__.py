"""Values and pure functions: events into rows, cursors, filters, wording."""
