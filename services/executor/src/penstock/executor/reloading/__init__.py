"""Replacing the job code of a host: a new warm parent, then new workers, then the old ones end."""
