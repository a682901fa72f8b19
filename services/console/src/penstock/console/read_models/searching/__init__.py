"""How lists find rows by any filter: which index they walk, and the index of texts."""
