"""Pages of the installation itself: health, events, metrics, audit, settings, the API."""
