"""Reports, forecasts and simulations over the lake."""
