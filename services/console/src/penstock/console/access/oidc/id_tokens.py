"""ID tokens: signature, issuer, audience, time and nonce. Pure but for the clock given."""

from __future__ import annotations

import hmac
import warnings
from collections.abc import Mapping
from typing import Any

from joserfc import jwt
from joserfc.errors import InvalidKeyIdError, JoseError, SecurityWarning
from joserfc.jwk import JWKRegistry, KeySet

from penstock.console.access.oidc.refusals import LoginRefused, ProviderFailed

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512")
"""Signatures by a key pair alone: neither ``none``, nor a secret that the console has, too."""
LEEWAY_SECONDS = 60
"""By how much the clocks of provider and console may differ."""
_KEY_TYPES = frozenset({"RSA", "EC"})
_MOST_KEYS = 50
_REFUSED = "The provider's answer was refused; the audit log says why. Log in again."
Claims = Mapping[str, Any]


class UnknownKey(LoginRefused):
    """The token is signed by a key that is not among the known ones; they may be outdated."""


def keys_of(document: Mapping[str, Any]) -> KeySet:
    """The keys of a JWKS document by which tokens can be signed; others are passed over.

    Raises:
        ProviderFailed: it holds none.
    """
    listed = document.get("keys")
    keys = []
    for one in listed[:_MOST_KEYS] if isinstance(listed, list) else ():
        if not isinstance(one, dict) or one.get("kty") not in _KEY_TYPES or one.get("use") == "enc":
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", SecurityWarning)  # RSA keys under 2,048 bits
                keys.append(JWKRegistry.import_key(one))
        except (JoseError, SecurityWarning, ValueError, TypeError, KeyError):
            continue
    if not keys:
        raise ProviderFailed("its keys (jwks_uri) hold none that signs tokens")
    return KeySet(keys)


def verify(
    token: str, keys: KeySet, *, issuer: str, client_id: str, nonce: str, now: float
) -> Claims:
    """The claims of an ID token.

    Args:
        token: in the compact form.
        keys: of the provider.
        issuer: as configured.
        client_id: of this console, for whom it must be made.
        nonce: of the login that it belongs to.
        now: POSIX seconds.

    Raises:
        UnknownKey: no such key.
        LoginRefused: it is not valid here and now; the detail says why.
    """
    try:
        read = jwt.decode(token, keys, algorithms=ALGORITHMS)
        jwt.JWTClaimsRegistry(
            now=int(now),
            leeway=LEEWAY_SECONDS,
            iss={"essential": True, "value": issuer},
            sub={"essential": True},
            aud={"essential": True, "value": client_id},
            exp={"essential": True},
            iat={"essential": True},
        ).validate(read.claims)
    except InvalidKeyIdError as error:
        raise UnknownKey(_REFUSED, f"ID token: {error}") from error
    except (JoseError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise LoginRefused(_REFUSED, f"ID token: {error}"[:300]) from error
    claims: Claims = read.claims
    given = claims.get("nonce")
    if not isinstance(given, str) or not hmac.compare_digest(given.encode(), nonce.encode()):
        raise LoginRefused(_REFUSED, "ID token: its nonce is of another login")
    # The party that it was issued to: required where there are several audiences.
    party = claims.get("azp")
    is_for_several = isinstance(claims["aud"], list) and len(claims["aud"]) > 1
    if (party is not None or is_for_several) and party != client_id:
        raise LoginRefused(_REFUSED, "ID token: it was issued to another client (azp)")
    return claims
