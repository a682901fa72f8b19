"""`penstock init`: the files of a new project."""
