"""Who may search jobs by their arguments, and by which; who sees the filters of others."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import parse_qsl, unquote_plus, urlencode, urlsplit

from litestar.exceptions import PermissionDeniedException

from penstock.console.core.job_query import HIDDEN_VALUE, BadFilter, JobQuery, read
from penstock.console.core.searchable_arguments import name_of
from penstock.console.parts import Console
from penstock.console.web.acting import check_limits
from penstock.console.web.credentials import Principal
from penstock.console.web.scopes import Scope

_SETTING = "console.searchable_arguments"
_ARGUMENT = "args."


def check_search(console: Console, principal: Principal, query: JobQuery) -> None:
    """Whether a caller may have a list by the arguments that a filter names.

    Args:
        console: its settings, and the arguments that its rows have.
        principal: the caller; a limited one must name a queue of its own.
        query: the filter; one without arguments is for everyone.

    Raises:
        BadFilter: an argument is not searched here.
        PermissionDeniedException: the caller may see no payloads, or none of that queue.
    """
    if query.args:
        check_names(console, principal, query.argument_names)
        check_limits(principal, queue=query.queue)


def check_names(console: Console, principal: Principal, names: Sequence[str]) -> None:
    """The same for the names alone, whatever the queue."""
    if Scope.PAYLOAD not in principal.scopes:
        raise PermissionDeniedException(
            f"{principal.name} may see no arguments: a search in them needs the scope "
            f"{Scope.PAYLOAD}"
        )
    named = console.settings.console.searchable_arguments
    wanted, there = ({name_of(one) for one in ones} for ones in (named, console.store.arguments))
    for name in names:
        if name not in wanted:
            listed = ", ".join(sorted(wanted)) or "none"
            raise BadFilter(
                f"args.{name[:40]}: is not searched; the setting {_SETTING} names {listed}"
            )
        if name not in there:
            state = console.standing.rebuilding or "it begins in a moment"
            raise BadFilter(f"args.{name}: is not indexed yet: {state}")


def shown_filter(principal: Principal, words: str) -> str:
    """A filter, without the values of arguments that the caller may not search by."""
    if _ARGUMENT not in words:
        return words
    try:
        query = read(words)
    except BadFilter:
        return HIDDEN_VALUE
    is_covered = not principal.is_limited or query.queue in principal.queues
    return words if Scope.PAYLOAD in principal.scopes and is_covered else query.masked_words


def shown_path(principal: Principal, path: str) -> str:
    """The same for a page with filters in its query."""
    if _ARGUMENT not in unquote_plus(path):
        return path
    parts = urlsplit(path)
    fields = parse_qsl(parts.query, keep_blank_values=True)
    shown = urlencode([(name, shown_filter(principal, value)) for name, value in fields])
    return parts._replace(query=shown).geturl()
