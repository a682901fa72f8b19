"""Every endpoint and page with every role and every kind of wrong credentials, from the router."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from litestar import Litestar, post
from litestar.routes import HTTPRoute
from tests.component.console.conftest import Site
from tests.component.console.signing_in import Guarded

from penstock.console.access.roles import ROLES
from penstock.console.app import application
from penstock.console.web.acting import (
    SAFE_METHODS,
    action_of,
    check_actions,
    is_own_record,
)
from penstock.console.web.credentials import Local
from penstock.console.web.scopes import Scope, needs, scope_of
from penstock.operations.api_tokens import new_token

ENDLESS = {"/live", "/api/v1/events/stream"}
SIGN_IN = {
    "/login",
    "/logout",
    "/setup/{account}/{secret}",
    "/elevate",
    "/api/v1/session/elevate",
}
"""What records its own entries, since the caller is known only afterwards."""
FORMS = {
    "/acts/{action}/{key}",
    "/bulk/preview",
    "/bulk/start",
    "/account/tokens",
    "/account/tokens/{token_id}/revoke",
    "/account/sessions/{session_id}/end",
    "/accounts",
    "/accounts/{name}/{act}",
    "/decisions/{decision_id}/recompute",
    "/decisions/{decision_id}/what-if",
    "/pools/{pool}/simulate",
    "/simulations/{simulation_id}/abort",
    "/views",
    "/views/{view_id}",
    "/views/{view_id}/remove",
    "/alerts/new-rule",
    "/alerts/rules/{rule_id}",
}
"""What sends a request to the API, whose entries are the ones that count."""


def endpoints(app: Litestar) -> Iterator[tuple[str, str, Any]]:
    for route in app.routes:
        if isinstance(route, HTTPRoute):
            for handler in route.route_handlers:
                for method in sorted({str(one) for one in handler.http_methods} - {"OPTIONS"}):
                    yield method, route.path_format, handler


def closed(site: Site) -> list[tuple[str, str, Scope]]:
    """Endpoints that need credentials: method, path with values in it, scope."""
    app = application(site.console, Local())
    return [
        (method, re.sub(r"\{[^}]*int\}", "1", re.sub(r"\{[^}]*\}", "1", path)), scope)
        for method, path, handler in endpoints(app)
        if (scope := scope_of(handler.opt)) is not Scope.PUBLIC and scope is not None
    ]


async def test_no_endpoint_answers_without_valid_credentials(site: Site) -> None:
    guarded = Guarded(site)
    revoked = await guarded.token("read", "admin")
    token_id = next(reversed(guarded.control.directory.tokens))
    await guarded.control.store.revoke_token(token_id)
    tokens = guarded.control.directory.tokens
    assert await guarded.control.directory.until(lambda: tokens[token_id].revoked_at is not None)
    headers: list[dict[str, str]] = [
        {},
        {"Cookie": "penstock-session=x"},
        *(
            {"Authorization": f"Bearer {token}"}
            for token in (
                new_token(),
                revoked,
                await guarded.token("read", "admin", days=-1),
                (await guarded.token("read", "admin"))[:-1] + "g",
                "pst_" + "A" * 51,
                "",
            )
        ),
    ]
    client = guarded.client()
    let_in = [
        (method, path, wrong, answer.status_code)
        for method, path, _ in closed(site)
        for wrong in headers
        if (answer := await client.request(method, path, headers=wrong)).status_code != 401
    ]
    assert let_in == []


@pytest.mark.parametrize("role", ROLES)
async def test_each_role_reaches_what_its_scopes_allow_and_nothing_else(
    site: Site, role: str
) -> None:
    guarded = Guarded(site)
    await guarded.account("ada", role)  # type: ignore[arg-type]
    by_cookie = await guarded.logged_in("ada")
    by_token = await guarded.bearer(*ROLES[role])
    wrong = []
    for method, path, scope in closed(site):
        if path in ENDLESS or path == "/logout":
            continue
        for client in (by_token, by_cookie):
            answer = await client.request(method, path)
            if (answer.status_code == 403) != (scope not in ROLES[role]) or (
                answer.status_code in (401, 500)
            ):
                wrong.append((method, path, scope, answer.status_code))
    assert wrong == []


def test_every_endpoint_that_acts_names_its_action(site: Site) -> None:
    """`application` refuses to be made otherwise."""
    app = application(site.console, Local())
    acting = [
        (path, handler) for method, path, handler in endpoints(app) if method not in SAFE_METHODS
    ]
    assert len(acting) >= 10
    assert [path for path, handler in acting if not action_of(handler.opt)] == []
    assert {path for path, handler in acting if is_own_record(handler.opt)} == SIGN_IN | FORMS
    named = [action_of(handler.opt) for _, handler in acting]
    assert [one for one in named if not re.fullmatch(r"[a-z_-]+(\.[a-z_-]+)+", one)] == []


def test_an_endpoint_that_acts_without_an_action_cannot_be_served() -> None:
    @post("/jobs/cancel-all", opt=needs(Scope.JOBS))
    async def cancel_all() -> None: ...

    with pytest.raises(RuntimeError, match="names no action"):
        check_actions([cancel_all])
