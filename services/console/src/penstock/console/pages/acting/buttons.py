"""Which acts a page offers to its viewer, and why one is not open to that person."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from litestar import Request

from penstock.console.pages.acting.page_acts import ACTS
from penstock.console.parts import Console
from penstock.console.web.access import PRINCIPAL
from penstock.console.web.credentials import Principal
from penstock.console.web.scopes import Scope

AnyRequest = Request[Any, Any, Any]
ACTED = "acted"
"""Parameter of a page's address that names the act after which the viewer came there."""


_DONE_AT_ONCE = {
    "alert.acknowledge": "The alert is yours: its messages are not repeated and do not escalate.",
    "alert.resolve": "The alert has ended; it fires again once its condition ended and returns.",
    "view.save": "The view is saved.",
    "view.change": "The view is changed.",
    "view.remove": "The view is removed.",
    "alert.rule.create": "The rule is made. Below is what it would have done.",
    "alert.rule.change": "The rule is saved. Below is what it would have done.",
}
"""Of acts that need no confirmation."""


class Button(msgspec.Struct, frozen=True, kw_only=True):
    """An act as a page offers it.

    Attributes:
        label: in two or three words.
        subject: what it acts on, for screen readers.
        path: of its confirmation.
        refusal: why this viewer may not, as a sentence; empty where nothing is against it.
    """

    label: str
    subject: str
    path: str
    refusal: str = ""
    is_grave: bool = False


class Acts(msgspec.Struct, frozen=True, kw_only=True):
    """The acts of a page or a row."""

    buttons: tuple[Button, ...] = ()

    @property
    def refusals(self) -> tuple[str, ...]:
        """Each reason once."""
        return tuple(dict.fromkeys(one.refusal for one in self.buttons if one.refusal))


def viewer(request: AnyRequest) -> Principal:
    """Who looks at the page."""
    principal: Principal = request.scope["state"][PRINCIPAL]
    return principal


def refusal(console: Console, principal: Principal, scope: Scope) -> str:
    """Why an act of this scope is not open to the viewer, as a sentence; empty where it is."""
    if console.control.read_only:
        return f"This console only shows: {console.control.rights.read_only_because}."
    if scope in principal.scopes:
        return ""
    if principal.kind == "local":
        return "Log in to act: without that, this machine may only read."
    whose = f"The role {principal.role}" if principal.role else f"The token {principal.name}"
    return f"{whose} may not: this needs the scope {scope}."


def acts(console: Console, request: AnyRequest, names: Iterable[str], key: str) -> Acts:
    """The acts on one thing.

    Args:
        console: its settings.
        request: of the page.
        names: of the acts that are possible in its present state.
        key: of the thing.
    """
    principal = viewer(request)
    return Acts(
        buttons=tuple(
            Button(
                label=act.label,
                subject=f"{act.noun} {key}",
                path=act.confirmation_path(key),
                refusal=refusal(console, principal, act.scope),
                is_grave=act.is_grave,
            )
            for act in (ACTS[name] for name in names)
        )
    )


def done(request: AnyRequest) -> str:
    """What the viewer just did, as a sentence; empty for nothing."""
    name = str(request.query_params.get(ACTED, ""))
    return ACTS[name].done if name in ACTS else _DONE_AT_ONCE.get(name, "")
