"""Endpoints of who calls and who may call: sessions, tokens, accounts, roles."""
