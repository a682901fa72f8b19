"""Pages of who is here: login, single sign-on, one's own account, all accounts."""
