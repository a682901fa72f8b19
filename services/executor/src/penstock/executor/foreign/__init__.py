"""Consumers of other systems as workers: started, watched and ended by their own signals."""
