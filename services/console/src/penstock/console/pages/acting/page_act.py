"""An act that pages offer: one request to the API, with what it will do in words."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, Literal
from urllib.parse import quote

import msgspec

from penstock.console.web.scopes import Scope

LONGEST_TEXT = 1000
_PART_OF_PATH = re.compile(r"\{(\w+)\}")
FLAG = ("no", "yes")
FieldKind = Literal["text", "whole", "number", "names", "hours", "choice", "flag", "json"]


class BadField(ValueError):
    """A field of a form cannot be read; says which, and what was expected."""


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """What an act takes besides its key.

    Attributes:
        name: in the API's body.
        kind: ``whole`` for a whole number, ``names`` for several with commas between them,
            ``hours`` for an end that many hours from now, ``flag`` for yes or no,
            ``json`` for any value as JSON.
        value: that the form begins with.
        choices: of a ``choice`` or ``flag``.
        about: a hint below the field.
    """

    name: str
    label: str
    kind: FieldKind = "text"
    value: str = ""
    choices: tuple[str, ...] = ()
    is_required: bool = False
    about: str = ""

    def read(self, text: str, now: datetime) -> Any:
        """The field's value for the API; None where it was left empty.

        Raises:
            BadField: it is missing, or not of its kind.
        """
        if not text:
            if self.is_required:
                raise BadField(f"{self.label}: this is needed")
            return None
        if len(text) > LONGEST_TEXT:
            raise BadField(f"{self.label}: at most {LONGEST_TEXT} characters")
        try:
            return _READERS[self.kind](text, now)
        except (ValueError, OverflowError, msgspec.DecodeError):
            raise BadField(f"{self.label}: found {text[:40]!r}, {_EXPECTED[self.kind]}") from None


REASON = Field(name="reason", label="Reason", about="Stored with the event and in the audit log.")
NEEDED_REASON = msgspec.structs.replace(REASON, is_required=True)


class PageAct(msgspec.Struct, frozen=True, kw_only=True):
    """One act.

    Attributes:
        name: as it stands in the audit log.
        label: of its button.
        path: of the API's endpoint, below ``/api/v1``; it may name the key and fields.
        page: where it is offered, and where the caller goes afterwards.
        noun: what it acts on, in words.
        effect: what will happen.
        done: what has happened, once it was accepted.
        body: sent besides the fields.
        is_grave: it cannot be taken back.
    """

    name: str
    label: str
    path: str
    page: str
    noun: str
    scope: Scope
    effect: str
    done: str
    method: Literal["POST", "PUT", "DELETE"] = "POST"
    fields: tuple[Field, ...] = ()
    body: Mapping[str, Any] | None = None
    is_grave: bool = False

    def api_path(self, key: str, values: Mapping[str, Any] = MappingProxyType({})) -> str:
        """The endpoint for one thing, not quoted; with the fields that its path names."""
        named = {**values, "key": key}
        return _PART_OF_PATH.sub(lambda part: str(named[part[1]]), self.path)

    def page_path(self, key: str) -> str:
        """The page of one thing."""
        return self.page.replace("{key}", quote(key, safe=""))

    def confirmation_path(self, key: str) -> str:
        """The page that asks whether the act is meant."""
        return f"/acts/{self.name}/{quote(key, safe='')}"

    def read(self, entered: Mapping[str, str], now: datetime) -> dict[str, Any]:
        """The fields of a form that were given.

        Raises:
            BadField: a field cannot be read.
        """
        values = {one.name: one.read(entered.get(one.name, ""), now) for one in self.fields}
        return {name: value for name, value in values.items() if value is not None}

    def api_body(self, values: Mapping[str, Any]) -> dict[str, Any] | None:
        """The body for the API; None where the endpoint takes none."""
        return None if self.body is None else {**self.body, **values}


def _until(text: str, now: datetime) -> str:
    hours = float(text)
    if not 0 < hours <= 720:
        raise ValueError(text)
    return (now + timedelta(hours=hours)).isoformat()


def _number(text: str, _: datetime) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


_READERS: Mapping[FieldKind, Any] = {
    "text": lambda text, _: text,
    "choice": lambda text, _: text,
    "flag": lambda text, _: text == FLAG[1],
    "whole": lambda text, _: int(text),
    "number": _number,
    "names": lambda text, _: [name.strip() for name in text.split(",") if name.strip()],
    "hours": _until,
    "json": lambda text, _: msgspec.json.decode(text),
}
_EXPECTED: Mapping[FieldKind, str] = {
    "text": "expected text",
    "choice": "expected one of the choices",
    "flag": "expected yes or no",
    "whole": "expected a whole number",
    "number": "expected a number",
    "names": "expected names with commas between them",
    "hours": "expected hours, up to 720",
    "json": 'expected JSON, such as 12 or "text"',
}
