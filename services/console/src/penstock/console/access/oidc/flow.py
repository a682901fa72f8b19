"""From the button of the login page to the provider, and back into a session."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import timedelta
from time import time
from urllib.parse import urlencode

import msgspec

from penstock.config.console import Console as ConsoleSettings
from penstock.console.access.oidc import CALLBACK
from penstock.console.access.oidc.attempts import Attempt, Attempts
from penstock.console.access.oidc.id_tokens import LEEWAY_SECONDS, Claims, UnknownKey, verify
from penstock.console.access.oidc.persons import name_of, role_of
from penstock.console.access.oidc.provider import Description, Provider
from penstock.console.access.oidc.refusals import LoginRefused, ProviderFailed
from penstock.events.console import Role

log = logging.getLogger("penstock.console")

_LONGEST_CODE = 4_000


class Person(msgspec.Struct, frozen=True, kw_only=True):
    """For whom the provider vouches.

    Attributes:
        name: as it stands in the audit log.
        next: the path to go to.
        elevates: id of the session for which the person proved again who it is; empty for a login.
    """

    name: str
    role: Role
    next: str
    elevates: str = ""


class OidcLogins:
    """The authorization code flow with one provider.

    Args:
        settings: of the console, with a provider.

    Raises:
        ConfigError: the client's secret cannot be read.
    """

    def __init__(self, settings: ConsoleSettings) -> None:
        self._settings = settings.oidc
        self._own = settings.public_url.rstrip("/")
        self._provider = Provider(settings.oidc)
        self._attempts = Attempts()

    @property
    def button(self) -> str:
        """What the button of the login page says."""
        return self._settings.button

    @property
    def longest(self) -> timedelta:
        """How long such a session lasts at most."""
        return timedelta(hours=self._settings.session_hours)

    async def begin(self, path: str, elevates: str = "") -> tuple[str, str]:
        """Where to send the browser, and the value of the cookie that it keeps meanwhile.

        Args:
            path: to go to afterwards.
            elevates: id of a session whose person proves again who it is.

        Raises:
            ProviderFailed: its description cannot be read.
        """
        description = await self._described()
        attempt, cookie = self._attempts.begin(path, time(), elevates)
        query = {
            "response_type": "code",
            "client_id": self._settings.client_id,
            "redirect_uri": self._own + CALLBACK,
            "scope": " ".join(self._settings.scopes),
            "state": attempt.state,
            "nonce": attempt.nonce,
            "code_challenge": attempt.challenge,
            "code_challenge_method": "S256",
        }
        if elevates:
            query |= {"prompt": "login", "max_age": "0"}
        return _with_query(description.authorization_endpoint, query), cookie

    async def finish(self, query: Mapping[str, str], cookie: str) -> Person:
        """The person who came back from the provider.

        Args:
            query: of the callback's address.
            cookie: that :meth:`begin` gave this browser.

        Raises:
            LoginRefused: who it is is not proved, or it has no role here.
            ProviderFailed: the provider does not answer.
        """
        attempt = self._attempts.end(cookie, query.get("state", ""), time())
        description = await self._described()
        _check_answer(query, description)
        try:
            token = await self._provider.id_token(query["code"], self._own + CALLBACK, attempt)
        except ProviderFailed as error:
            log.warning("the login provider failed: %s", error.detail)
            raise
        claims = await self._verified(token, attempt)
        if attempt.elevates:
            _check_fresh(claims, attempt)
        return Person(
            name=name_of(claims, self._settings),
            role=role_of(claims, self._settings),
            next=attempt.next,
            elevates=attempt.elevates,
        )

    async def logout_address(self) -> str:
        """Where people log out at the provider, too; empty where that is not offered."""
        try:
            end = (await self._described()).end_session_endpoint
        except ProviderFailed:
            return ""
        back = {
            "client_id": self._settings.client_id,
            "post_logout_redirect_uri": f"{self._own}/login",
        }
        return _with_query(end, back) if end else ""

    async def _described(self) -> Description:
        try:
            return await self._provider.description()
        except ProviderFailed as error:
            log.warning("the login provider failed: %s", error.detail)
            raise

    async def _verified(self, token: str, attempt: Attempt) -> Claims:
        expected = {
            "issuer": self._settings.issuer,
            "client_id": self._settings.client_id,
            "nonce": attempt.nonce,
        }
        try:
            return verify(token, await self._provider.keys(), **expected, now=time())
        except UnknownKey:  # the provider may have new ones
            return verify(token, await self._provider.keys(refresh=True), **expected, now=time())


def _check_answer(query: Mapping[str, str], description: Description) -> None:
    issuer = query.get("iss")
    if (issuer is not None or description.names_itself) and issuer != description.issuer:
        raise LoginRefused(
            "The answer is of another provider. Log in again.",
            f"the answer names the issuer {(issuer or '')[:100]!r}",
        )
    if error := query.get("error", ""):
        raise LoginRefused("The provider refused this login.", f"the provider says {error[:100]!r}")
    if not 1 <= len(query.get("code", "")) <= _LONGEST_CODE:
        raise LoginRefused("The provider's answer is not complete. Log in again.", "no code")


def _check_fresh(claims: Claims, attempt: Attempt) -> None:
    at = claims.get("auth_time")
    if not isinstance(at, int | float) or at < attempt.began_at - LEEWAY_SECONDS:
        raise LoginRefused(
            "The provider did not ask you again who you are. Log out there, then try again.",
            "ID token: auth_time is missing, or before the request",
        )


def _with_query(address: str, query: Mapping[str, str]) -> str:
    return f"{address}{'&' if '?' in address else '?'}{urlencode(query)}"
