"""The service that decides how many workers each pool needs, and where; see `app` and `core`."""
