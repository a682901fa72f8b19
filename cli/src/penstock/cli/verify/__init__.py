"""`penstock verify`: the promises, checked in the event log of an installation."""
