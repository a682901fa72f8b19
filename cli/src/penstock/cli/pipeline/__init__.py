"""The lake: land events, roll them up, forecast arrivals, report promises."""
