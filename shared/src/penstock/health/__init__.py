"""Health of an installation: facts from the broker and the host, rules over them, one report."""
