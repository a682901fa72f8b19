"""What each role may do."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.console.web.scopes import Scope

_ACTING = (Scope.PAYLOAD, Scope.JOBS, Scope.QUEUES, Scope.SCHEDULES, Scope.ALERTS)

ROLES: Mapping[str, frozenset[Scope]] = {
    "viewer": frozenset({Scope.READ}),
    "operator": frozenset({Scope.READ, *_ACTING}),
    "admin": frozenset({Scope.READ, *_ACTING, Scope.ADMIN}),
}
"""Scopes of the roles; a viewer sees no arguments and no results."""

READ_ONLY = frozenset({Scope.READ, Scope.PAYLOAD, Scope.ADMIN})
"""Scopes that are left on a console that changes nothing."""


def scopes_of(names: tuple[str, ...]) -> frozenset[Scope]:
    """The scopes of a token that this version knows; never :attr:`Scope.PUBLIC`."""
    grantable = {str(scope): scope for scope in Scope if scope is not Scope.PUBLIC}
    return frozenset(grantable[name] for name in names if name in grantable)
