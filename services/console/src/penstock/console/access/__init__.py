"""Who may do what, and the record of who did: accounts, tokens, sessions, audit log."""
