"""`penstock up`: broker and services as children of one command, shown in one table."""
