"""How an installation is: facts asked of the broker and the host, rules over them, one report."""
