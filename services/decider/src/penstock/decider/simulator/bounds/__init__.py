"""Lower bounds: the fewest worker-seconds with which a load could have kept its promise."""
