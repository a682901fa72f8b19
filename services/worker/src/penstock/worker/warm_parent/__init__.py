"""The process that imports what is heavy once, and forks workers from it."""
