"""Jobs that will not run again by themselves: reading, requeueing and deleting them."""
