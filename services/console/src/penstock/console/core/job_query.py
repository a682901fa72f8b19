"""Which jobs a list shows: the filter that the API, the pages and their links share. Pure.

As text it is ``state:dead queue:reports err:"timed out" args.table:orders``; words without
a name are searched in function, tags, error and id.
"""

from __future__ import annotations

import re

import msgspec

from penstock.console.core.searchable_arguments import item
from penstock.jobs.lifecycle import State

STATES: tuple[str, ...] = tuple(state.value for state in State)
_TERM = re.compile(r'(?:(?P<name>args\.\w*|[a-z_]+):)?(?:"(?P<quoted>[^"]*)"|(?P<plain>\S+))')
_ALIASES = {"err": "error", "fn": "function"}
MAX_TEXT_LENGTH = 200
MOST_ARGUMENTS = 8
HIDDEN_VALUE = "…"
"""Of an argument, in a filter that is shown to a caller who may not search by it."""
_ARGUMENTS = "args"


class BadFilter(ValueError):
    """A filter that cannot be read; says what was found and what was expected."""


class JobQuery(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Jobs that have all that is named; what is empty matches any.

    Attributes:
        state: one of the states of a job.
        queue: without the suffix of a priority.
        function: registered name.
        host: where it runs or ran last.
        tag: one of its tags.
        batch: id of its batch.
        error: part of its error's kind or message.
        failure: fingerprint of a group of failures.
        silenced: ``yes`` for jobs of muted functions alone.
        args: ``name=value`` for each argument that it was called with.
        text: part of its function, tags, error or id.
    """

    state: str = ""
    queue: str = ""
    function: str = ""
    host: str = ""
    tag: str = ""
    batch: str = ""
    error: str = ""
    failure: str = ""
    silenced: str = ""
    args: tuple[str, ...] = ()
    text: str = ""

    def __post_init__(self) -> None:
        """Raises BadFilter: an unknown state, or a text that is too long."""
        if self.state and self.state not in STATES:
            raise BadFilter(f"found state {self.state[:40]!r}, expected one of {', '.join(STATES)}")
        if self.silenced not in ("", "yes"):
            raise BadFilter(f"found silenced:{self.silenced[:40]}, expected silenced:yes")
        for name in _TEXTS:
            if len(getattr(self, name)) > MAX_TEXT_LENGTH:
                raise BadFilter(f"{name} is longer than {MAX_TEXT_LENGTH} characters")
        if len(self.args) > MOST_ARGUMENTS:
            raise BadFilter(f"found {len(self.args)} arguments, expected {MOST_ARGUMENTS} at most")
        if any(len(one.partition("=")[2]) > MAX_TEXT_LENGTH for one in self.args):
            raise BadFilter(f"args is longer than {MAX_TEXT_LENGTH} characters")

    @property
    def words(self) -> str:
        """The filter as text; :func:`read` gives it back."""
        named = (
            f"{name}:{_quoted(value)}"
            for name in _TEXTS
            if name != "text" and (value := getattr(self, name))
        )
        arguments = (one.partition("=") for one in self.args)
        called = (f"{_ARGUMENTS}.{name}:{_quoted(value)}" for name, _, value in arguments)
        return " ".join([*named, *called, *([_quoted(self.text)] if self.text else [])])

    @property
    def masked_words(self) -> str:
        """The filter as text, without the values of its arguments."""
        hidden = tuple(item(name, HIDDEN_VALUE) for name in self.argument_names)
        return msgspec.structs.replace(self, args=hidden).words

    @property
    def argument_names(self) -> tuple[str, ...]:
        """Of the arguments, each once."""
        return tuple(dict.fromkeys(one.partition("=")[0] for one in self.args))


_TEXTS = tuple(name for name in JobQuery.__struct_fields__ if name != _ARGUMENTS)


def read(text: str) -> JobQuery:
    """The filter that a text describes.

    Raises:
        BadFilter: it names something that a job does not have.
    """
    fields: dict[str, str] = {}
    arguments: list[str] = []
    for term in _TERM.finditer(text[: 4 * MAX_TEXT_LENGTH]):
        name = _ALIASES.get(term["name"] or "text", term["name"] or "text")
        value = term["quoted"] if term["quoted"] is not None else term["plain"]
        argument = name.removeprefix(f"{_ARGUMENTS}.")
        if argument != name and argument:
            arguments.append(item(argument, value))
            continue
        if name not in _TEXTS:
            expected = ", ".join(f"{field}:" for field in (*_TEXTS[:-1], "args.NAME"))
            raise BadFilter(f"found {name[:40]!r}:, expected {expected} or a word to search for")
        if fields.get(name, value) != value and name != "text":
            raise BadFilter(f"{name}: is named twice")
        fields[name] = f"{fields['text']} {value}" if name == "text" and "text" in fields else value
    return JobQuery(args=tuple(dict.fromkeys(arguments)), **fields)


def _quoted(value: str) -> str:
    value = value.replace('"', "")
    return f'"{value}"' if not value or re.search(r"\s|:", value) else value
