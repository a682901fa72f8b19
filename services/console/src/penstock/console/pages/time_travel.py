"""Of which time a page is: the bar by which its reader goes to another, and links that keep it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cached_property
from math import ceil, floor
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from litestar import Request

from penstock.console.parts import Console
from penstock.console.past.moments import PARAMETER, AsOf, BadMoment, text_of
from penstock.console.read_models.time_marks import Kind, Mark, TimeMarks, time_marks

AnyRequest = Request[Any, Any, Any]
WIDTH = 1000
"""Of the drawing of marks."""
_KINDS: Mapping[Kind, tuple[str, str]] = {
    "decision": ("change of workers", "changes of workers"),
    "host": ("change of hosts", "changes of hosts"),
    "breach": ("breach of a promise", "breaches of promises"),
}
"""In the order of their rows in the drawing, one and several in words."""
_OF_ONE_TIME = {PARAMETER, "cursor", "acted"}
"""Parameters that mean nothing at another time."""
_LINK = re.compile(r'(?<!data-now )((?:href|hx-get)=")(/(?!static/|api/)[^"#]*)')
_FORM = re.compile(r'<form(?! data-now)[^>]*\smethod="get"[^>]*>')


class Row(NamedTuple):
    """The marks of one kind; ``path`` is their drawing, ``words`` how many there are."""

    kind: Kind
    path: str
    words: str


class Slider(NamedTuple):
    """Seconds since 1970."""

    first: int
    last: int
    value: int
    step: int


class Visit:
    """A page that is looked at.

    Args:
        path: of the page.
        query: its parameters.
        past: what it rests on where it is of a past moment; None for now.
        marks: the past that can be gone back to; None for a page that cannot be shown.
    """

    def __init__(
        self,
        path: str,
        query: Mapping[str, str],
        past: AsOf | None = None,
        marks: TimeMarks | None = None,
    ) -> None:
        self.path, self.past, self.marks = path, past, marks
        self.query = {name: value for name, value in query.items() if name not in _OF_ONE_TIME}

    @property
    def sentence(self) -> str:
        """``12:03:04, not now``; with the day when it is not today's."""
        if self.past is None:
            return ""
        moment = self.past.moment.astimezone(UTC)
        same_day = moment.date() == self._until.date()
        return f"{moment:{'%H:%M:%S' if same_day else '%Y-%m-%d %H:%M:%S'}}, not now"

    @property
    def now(self) -> str:
        """The address of the page as it is now."""
        return self._address(self.query)

    @cached_property
    def earlier(self) -> Mark | None:
        """The mark before; None where there is none."""
        return self.marks.before(self.past.moment if self.past else None) if self.marks else None

    @cached_property
    def later(self) -> Mark | None:
        """The mark after; None for none, and now."""
        return self.marks.after(self.past.moment) if self.marks and self.past else None

    def at(self, mark: Mark) -> str:
        """The address of the page as of a mark."""
        return self._address({**self.query, PARAMETER: text_of(mark.at)})

    @property
    def field(self) -> str:
        """The moment, or now, as a field for a time has it."""
        return self._shown.strftime("%Y-%m-%dT%H:%M:%S")

    @property
    def slider(self) -> Slider | None:
        """Over all of the past that can be gone back to; None where there is none yet."""
        if self.marks is None or self.marks.since is None:
            return None
        first, last = ceil(self.marks.since.timestamp()), floor(self._until.timestamp())
        if first >= last:
            return None
        shown = floor(self._shown.timestamp())
        return Slider(first, last, min(max(shown, first), last), max(1, (last - first) // WIDTH))

    @property
    def rows(self) -> list[Row]:
        """The marks as they are drawn beside the slider."""
        slider = self.slider
        if self.marks is None or slider is None:
            return []
        scale = WIDTH / (slider.last - slider.first)
        rows: list[Row] = []
        for kind, (one, several) in _KINDS.items():
            times = [mark.at.timestamp() for mark in self.marks.items if mark.kind == kind]
            places = sorted({round(scale * (at - slider.first)) for at in times})
            path = "".join(f"M{min(max(x, 0), WIDTH)} 0v1" for x in places)
            rows.append(Row(kind, path, f"{len(times)} {one if len(times) == 1 else several}"))
        return rows

    @property
    def _until(self) -> datetime:
        return self.marks.until if self.marks else datetime.now(UTC)

    @property
    def _shown(self) -> datetime:
        return (self.past.moment if self.past else self._until).astimezone(UTC)

    def _address(self, query: Mapping[str, str]) -> str:
        return quote(self.path) + (f"?{urlencode(query, safe=':')}" if query else "")


async def visit(
    console: Console, request: AnyRequest, past: AsOf | None = None, path: str = ""
) -> Visit:
    """The page that a request asks for.

    Args:
        console: its marks.
        request: of the page.
        past: what it rests on where it is of a past moment; None for now.
        path: of the page where that of the request is another.
    """
    query = dict(request.query_params.items()) if not path else {}
    return Visit(path or request.url.path, query, past, await time_marks(console))


def refused(console: Console, request: AnyRequest) -> Visit | None:
    """A page that cannot be shown as of the moment that its address names; None for now."""
    try:
        moment = console.history.moment(request.query_params.get(PARAMETER, ""))
    except BadMoment:
        return None
    query = dict(request.query_params.items())
    return Visit(request.url.path, query, AsOf(moment=moment)) if moment else None


def carried(page: str, moment: datetime) -> str:
    """A page whose links and searches lead to pages as of the same moment.

    Only what templates wrote is changed: text of jobs has no quotes, they are escaped. What says
    ``data-now`` leads elsewhere.

    Args:
        page: as HTML.
        moment: that it is of.
    """
    text = text_of(moment)

    def link(match: re.Match[str]) -> str:
        begin, path = match.groups()
        if f"{PARAMETER}=" in path:
            return match[0]
        return f"{begin}{path}{'&amp;' if '?' in path else '?'}{PARAMETER}={text}"

    def form(match: re.Match[str]) -> str:
        return f'{match[0]}<input type="hidden" name="{PARAMETER}" value="{text}">'

    return _FORM.sub(form, _LINK.sub(link, page))
