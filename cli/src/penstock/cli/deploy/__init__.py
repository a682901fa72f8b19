"""`penstock deploy`: what an installation on several hosts needs before it starts."""
