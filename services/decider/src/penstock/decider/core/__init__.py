"""The pure half: measurements and `now` in; decisions, plans and notices out."""
