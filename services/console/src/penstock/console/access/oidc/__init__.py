"""Logins by OpenID Connect: the authorization code flow, with PKCE, state and nonce."""

CALLBACK = "/login/oidc/callback"
