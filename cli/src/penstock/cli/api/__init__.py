"""`penstock api`: who may use the console and its API."""
