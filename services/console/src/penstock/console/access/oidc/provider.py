"""The provider: its description, its keys, and the exchange of a code for an ID token.

Requests go to the issuer's host and those that the settings name, whatever the description says;
no redirect is followed, and answers have a bound.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
import msgspec
from joserfc.jwk import KeySet

from penstock.config import ConfigError
from penstock.config.oidc import Oidc, is_provider_address
from penstock.console.access.oidc.attempts import Attempt
from penstock.console.access.oidc.id_tokens import keys_of
from penstock.console.access.oidc.refusals import LoginRefused, ProviderFailed

_TIMEOUT_SECONDS = 10.0
_MOST_BYTES = 512_000
_DESCRIBED_SECONDS, _KEYS_SECONDS, _KEYS_AGAIN_SECONDS = 600.0, 600.0, 30.0
_FAILED_SECONDS = 3.0
"""For so long a provider that failed is not asked again, however many people try to log in."""
_OK = 200
_ACCEPT = {"Accept": "application/json"}
_LONGEST_SECRET = 1_000


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """What is used of the provider's description (OpenID Connect Discovery).

    Attributes:
        client_methods: how the console may prove to the provider who it is.
        names_itself: its answers carry its address (RFC 9207).
    """

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    end_session_endpoint: str = ""
    client_methods: tuple[str, ...] = msgspec.field(
        name="token_endpoint_auth_methods_supported", default=("client_secret_basic",)
    )
    names_itself: bool = msgspec.field(
        name="authorization_response_iss_parameter_supported", default=False
    )


class Provider:
    """Asks the provider, and remembers its description and keys for ten minutes.

    Args:
        settings: of it.

    Raises:
        ConfigError: the client's secret or the authority cannot be read.
    """

    def __init__(self, settings: Oidc) -> None:
        self._settings = settings
        self._secret = _secret(settings.client_secret_file)
        self._tls = _tls(settings.ca_file)
        self._described: tuple[float, Description] | None = None
        self._keys: tuple[float, KeySet] | None = None
        self._failed: tuple[float, ProviderFailed] | None = None
        self._one_at_a_time = asyncio.Lock()

    async def description(self) -> Description:
        """Its description. Raises ProviderFailed."""
        async with self._one_at_a_time:
            if self._described and monotonic() - self._described[0] < _DESCRIBED_SECONDS:
                return self._described[1]
            if self._failed and monotonic() - self._failed[0] < _FAILED_SECONDS:
                raise ProviderFailed(self._failed[1].detail)
            try:
                read = await self._describe()
            except ProviderFailed as error:
                self._failed = monotonic(), error
                raise
            self._described = monotonic(), read
            return read

    async def keys(self, refresh: bool = False) -> KeySet:
        """Its keys.

        Args:
            refresh: a key was not among the known ones: reads them anew, twice a minute at most.

        Raises:
            ProviderFailed: they cannot be read.
        """
        at_most = _KEYS_AGAIN_SECONDS if refresh else _KEYS_SECONDS
        if self._keys and monotonic() - self._keys[0] < at_most:
            return self._keys[1]
        document = await self._json("GET", (await self.description()).jwks_uri)
        self._keys = monotonic(), keys_of(document)
        return self._keys[1]

    async def id_token(self, code: str, redirect_uri: str, attempt: Attempt) -> str:
        """The ID token for a code.

        Raises:
            LoginRefused: the provider refuses the code: it was used, or is another client's.
            ProviderFailed: it does not answer.
        """
        description = await self.description()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "client_id": self._settings.client_id,
            "code_verifier": attempt.verifier,
        }
        auth: httpx.Auth | None = None
        if self._secret and "client_secret_basic" in description.client_methods:
            # RFC 6749, section 2.3.1: both are form-encoded before they are joined.
            auth = httpx.BasicAuth(quote(form["client_id"], safe=""), quote(self._secret, safe=""))
        elif self._secret:
            form["client_secret"] = self._secret
        answer = await self._json("POST", description.token_endpoint, form, auth)
        token = answer.get("id_token")
        if not isinstance(token, str):
            raise ProviderFailed("its answer to the code holds no id_token")
        return token

    async def _describe(self) -> Description:
        address = self._settings.issuer.rstrip("/") + "/.well-known/openid-configuration"
        read = _converted(await self._json("GET", address))
        if read.issuer != self._settings.issuer:
            raise ProviderFailed(
                f"it names itself {read.issuer[:200]!r}, expected {self._settings.issuer!r}"
            )
        ends = (read.end_session_endpoint,) if read.end_session_endpoint else ()
        for endpoint in (read.authorization_endpoint, read.token_endpoint, read.jwks_uri, *ends):
            self._check(endpoint)
        return read

    async def _json(
        self,
        method: str,
        url: str,
        form: Mapping[str, str] | None = None,
        auth: httpx.Auth | None = None,
    ) -> dict[str, Any]:
        self._check(url)
        where = f"{method} {url[:200]}"
        try:
            # Neither proxies nor a .netrc of the environment: requests go to this host itself.
            async with (
                asyncio.timeout(_TIMEOUT_SECONDS),
                httpx.AsyncClient(
                    verify=self._tls, timeout=_TIMEOUT_SECONDS, trust_env=False
                ) as client,
                client.stream(method, url, data=form, headers=_ACCEPT, auth=auth) as response,
            ):
                body = b""
                async for part in response.aiter_bytes():
                    body += part
                    if len(body) > _MOST_BYTES:
                        raise ProviderFailed(f"{where}: more than {_MOST_BYTES} bytes")
        except TimeoutError:
            raise ProviderFailed(f"{where}: no answer within {_TIMEOUT_SECONDS:g} s") from None
        except (httpx.HTTPError, httpx.InvalidURL, ssl.SSLError, UnicodeError) as error:
            raise ProviderFailed(f"{where}: {error or type(error).__name__}"[:400]) from error
        if response.status_code != _OK:
            refused = _refusal(body)
            if form is not None and refused:
                raise LoginRefused(
                    "The provider refused this login. Log in again.", f"{where}: {refused}"
                )
            raise ProviderFailed(f"{where}: status {response.status_code} {refused}")
        try:
            return msgspec.json.decode(body, type=dict[str, Any])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise ProviderFailed(f"{where}: no JSON object") from error

    def _check(self, url: str) -> None:
        """Refuses what lies at another host, or has less protection than the issuer."""
        issuer = urlsplit(self._settings.issuer)
        if not is_provider_address(url.partition("?")[0]):
            raise ProviderFailed(f"its description names {url[:200]!r}, which is no https address")
        parts = urlsplit(url)
        hosts = {issuer.hostname, *(host.lower() for host in self._settings.hosts)}
        if parts.hostname not in hosts or (issuer.scheme == "https" and parts.scheme != "https"):
            raise ProviderFailed(
                f"its description names {url[:200]!r}, whose host is not the issuer's; if that is "
                "right, add the host to console.oidc.hosts"
            )


def _converted(document: dict[str, Any]) -> Description:
    try:
        return msgspec.convert(document, Description)
    except msgspec.ValidationError as error:
        raise ProviderFailed(f"its description: {error}"[:300]) from error


def _refusal(body: bytes) -> str:
    """The error code of an answer (RFC 6749, section 5.2); empty where it has none."""
    try:
        error = msgspec.json.decode(body, type=dict[str, Any]).get("error")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""
    return error[:100] if isinstance(error, str) else ""


def _secret(path: str) -> str:
    if not path:
        return ""
    name = "console.oidc.client_secret_file"
    try:
        secret = Path(path).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{name}: {path} cannot be read: {error}") from error
    if not 1 <= len(secret) <= _LONGEST_SECRET or not secret.isprintable():
        raise ConfigError(f"{name}: {path} holds no secret in one line")
    return secret


def _tls(path: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=path or None)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"console.oidc.ca_file: {path} cannot be read: {error}") from error
