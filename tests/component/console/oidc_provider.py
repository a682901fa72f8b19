"""A provider of OpenID Connect on loopback, which tests have lie in every way that they need."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, RSAKey

CLIENT, SECRET = "penstock console", "s3cret: with/odd+characters%"
Claims = dict[str, Any]


class Provider:
    """The authorization code flow with PKCE, as RFC 6749, 7636 and 9207 and OpenID Connect have it.

    Attributes:
        person: claims of whoever logs in.
        changed: changes the claims of the next ID tokens.
        signed: makes the ID token of its claims.
        described: changes the description.
        requests: method and path of each.
    """

    def __init__(self, redirect_uri: str) -> None:
        self.redirect_uri = redirect_uri
        self.keys = {
            "RS256": RSAKey.generate_key(2048, {"kid": "rsa-1", "use": "sig"}),
            "ES256": ECKey.generate_key("P-256", {"kid": "ec-1", "use": "sig"}),
        }
        self.requests: list[tuple[str, str]] = []
        self._codes: dict[str, dict[str, str]] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.issuer = f"http://127.0.0.1:{self._server.server_port}/realms/main"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()
        self.reset()

    def reset(self) -> None:
        """Honest again."""
        self.person: Claims = {
            "sub": "1234",
            "email": "ada@example.org",
            "groups": ["staff", "data-platform"],
        }
        self.changed: Callable[[Claims], Claims] = lambda claims: claims
        self.signed: Callable[[Claims], str] = self.signed_by("RS256")
        self.described: Callable[[Claims], Claims] = lambda document: document
        self.answers: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self.requests.clear()
        self._codes.clear()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def signed_by(self, algorithm: str, key: Any = None, **header: Any) -> Callable[[Claims], str]:
        signing = key or self.keys[algorithm]
        named = {"alg": algorithm, "kid": signing.kid, **header}
        return lambda claims: jwt.encode(named, claims, signing, algorithms=[algorithm])

    def authorize(self, address: str) -> str:
        """What a browser does there: logs in, and is sent back to the address that is returned."""
        asked = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
        assert address.startswith(f"{self.issuer}/authorize?")
        assert asked["response_type"] == "code"
        assert asked["client_id"] == CLIENT
        assert asked["redirect_uri"] == self.redirect_uri
        assert "openid" in asked["scope"].split()
        assert asked["code_challenge_method"] == "S256"
        code = secrets.token_urlsafe(16)
        self._codes[code] = asked
        back = {"code": code, "state": asked["state"], "iss": self.issuer}
        return f"{self.redirect_uri}?{urlencode(back)}"

    def _document(self) -> Claims:
        return self.described(
            {
                "issuer": self.issuer,
                "authorization_endpoint": f"{self.issuer}/authorize",
                "token_endpoint": f"{self.issuer}/token",
                "jwks_uri": f"{self.issuer}/keys",
                "end_session_endpoint": f"{self.issuer}/logout",
                "authorization_response_iss_parameter_supported": True,
                "response_types_supported": ["code"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": ["RS256"],
            }
        )

    def _exchange(self, form: dict[str, str], authorization: str) -> tuple[int, Claims]:
        user, _, password = base64.b64decode(authorization.removeprefix("Basic ")).partition(b":")
        if (unquote(user.decode()), unquote(password.decode())) != (CLIENT, SECRET):
            return 401, {"error": "invalid_client"}
        asked = self._codes.pop(form.get("code", ""), None)  # each code is taken once
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if (
            asked is None
            or form.get("grant_type") != "authorization_code"
            or form.get("redirect_uri") != asked["redirect_uri"]
            or challenge != asked["code_challenge"]
        ):
            return 400, {"error": "invalid_grant"}
        now = int(time.time())
        claims = {
            "iss": self.issuer,
            "aud": CLIENT,
            "iat": now,
            "exp": now + 300,
            "nonce": asked["nonce"],
            **({"auth_time": now} if "max_age" in asked else {}),
            **self.person,
        }
        token = self.signed(self.changed(claims))
        return 200, {"access_token": "unused", "token_type": "Bearer", "id_token": token}

    def _handler(provider) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = urlsplit(self.path).path
                provider.requests.append(("GET", path))
                if path in provider.answers:
                    self._send(*provider.answers[path])
                elif path.endswith("/.well-known/openid-configuration"):
                    self._json(200, provider._document())
                elif path.endswith("/keys"):
                    self._json(200, KeySet([*provider.keys.values()]).as_dict(private=False))
                else:
                    self._json(404, {})

            def do_POST(self) -> None:
                provider.requests.append(("POST", self.path))
                length = int(self.headers.get("content-length", 0))
                form = parse_qs(self.rfile.read(length).decode())
                if self.path in provider.answers:
                    self._send(*provider.answers[self.path])
                    return
                fields = {name: values[0] for name, values in form.items()}
                self._json(*provider._exchange(fields, self.headers.get("authorization", "")))

            def _json(self, status: int, body: Any) -> None:
                kind = {"Content-Type": "application/json"}
                self._send(status, kind, json.dumps(body).encode())

            def _send(self, status: int, headers: dict[str, str], body: bytes) -> None:
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None: ...

        return Handler
