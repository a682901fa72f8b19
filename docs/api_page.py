"""Makes api.md: all that programs may import, from its docstrings; used by generate.py."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import is_dataclass
from textwrap import dedent, indent
from typing import Any

import griffe
import msgspec
from docstrings import capital, module_source, sections_of, source_of
from tables import table

import penstock.config
import penstock.decider.simulator
import penstock.jobs
import penstock.testing
from penstock.jobs import errors, sink
from penstock.jobs.batches.batch_record import BatchRecord
from penstock.jobs.batches.open_batch import OpenBatch
from penstock.jobs.reading.job_list import JobList
from penstock.jobs.running.context import JobBatch, JobCheckpoint
from penstock.jobs.schedules.schedule import Schedule
from penstock.jobs.workflows.definitions import StoredDefinition
from penstock.jobs.workflows.graph_record import GraphRecord
from penstock.testing.assertions import Assertions
from penstock.testing.memory.bus import MemoryBus

INTRODUCTION = """
# Python API

All that programs may import: from `penstock.jobs`, unless another module is named. What is not on
this page may change at any time. [Jobs](jobs.md) explains how it is used.
"""
GROUPS: dict[str, tuple[str, ...]] = {
    "Declaring jobs": ("job", "Context", "Backoff", "schedule"),
    "Middleware": ("RateLimited", "WithoutOverlapping", "Unique", "Timeout"),
    "Dispatching": ("Client", "SyncClient", "NamedJob", "awaiting"),
    "Values for dispatching": ("Step", "Terms", "LetterFilter"),
    "Reading": ("JobView", "State"),
}
"""Names of `penstock.jobs` in the order of the page; all others follow, but for errors."""
BESIDE: dict[str, tuple[type, ...]] = {
    "jobs": (JobList,),
    "batches": (OpenBatch, BatchRecord),
    "graphs": (GraphRecord,),
    "definitions": (StoredDefinition,),
    "schedules": (Schedule,),
}
"""What the verbs of a client's attribute give."""
FURTHER_ERRORS = {
    penstock.jobs: (
        penstock.jobs.BadGraph,
        penstock.jobs.BusError,
        penstock.jobs.BusUnavailable,
        penstock.jobs.StreamFull,
    ),
    penstock.config: (penstock.config.ConfigError, penstock.config.NoBrokerKnown),
}
"""Errors that the tree in `penstock.jobs.errors` lacks, by the module to import them from."""
_ROLE = re.compile(r":\w+:`~?([^`]+)`")
_LITERAL = re.compile(r"::\n\n((?: {4}.*\n?|\n)+)")
_Part = griffe.DocstringSectionKind


def api_page() -> str:
    """The whole page."""
    parts = [INTRODUCTION.strip()]
    for title, items in _groups().items():
        parts.append(f"## {title}")
        parts += [text for item in items for text in _described(item)]
    parts += ["## Errors", *_errors()]
    return "\n\n".join(parts)


def _groups() -> dict[str, list[Any]]:
    exported = {name: getattr(penstock.jobs, name) for name in penstock.jobs.__all__}
    groups: dict[str, list[Any]] = {
        title: [exported.pop(name) for name in names] for title, names in GROUPS.items()
    }
    for name, kind in _attributes_of_a_client():
        groups[f"`client.{name}`"] = [kind, *BESIDE.get(name, ())]
    groups["Within a job: `context.checkpoint`, `context.batch`"] = [JobCheckpoint, JobBatch]
    rest = [item for item in exported.values() if not _is_error(item)]
    groups["Values"] = rest
    groups["Output that is written once: `penstock.jobs.sink`"] = [
        sink.write_parquet,
        sink.transaction,
    ]
    groups["Settings: `penstock.config`"] = [penstock.config.load]
    groups["Tests: `penstock.testing`"] = [
        penstock.testing.Bench,
        penstock.testing.SyncBench,
        Assertions,
        penstock.testing.Dispatched,
    ]
    groups["Simulating: `penstock.decider.simulator`"] = [
        penstock.decider.simulator.simulate,
        penstock.decider.simulator.read_trace,
        penstock.decider.simulator.SimulationResult,
    ]
    return groups


def _attributes_of_a_client() -> Iterator[tuple[str, type]]:
    client = penstock.jobs.Client(MemoryBus("penstock"))
    for name, value in vars(client).items():
        if not name.startswith("_") and name != "dispatcher":  # which is for the platform itself
            yield name, type(value)


def _is_error(item: Any) -> bool:
    return isinstance(item, type) and issubclass(item, BaseException)


def _errors() -> Iterator[str]:
    """The tree of errors, as their module draws it, and those of broker and settings."""
    tree = (errors.__doc__ or "").partition("::\n\n")[2]
    yield "All are in `penstock.jobs.errors`; those that programs meet are in `penstock.jobs`, too."
    yield f"```text\n{inspect.cleandoc(tree).rstrip()}\n```"
    rows = [
        [f"`{module.__name__}.{kind.__name__}`", _first_line(kind)]
        for module, kinds in FURTHER_ERRORS.items()
        for kind in kinds
    ]
    yield table(["error", "meaning"], rows)


def _first_line(kind: type) -> str:
    return inspect.cleandoc(kind.__doc__ or "").partition("\n\n")[0].replace("\n", " ")


def _described(item: Any) -> Iterator[str]:
    """A function, or a class with its attributes and methods."""
    item = item.function if isinstance(item, penstock.jobs.JobType) else item
    if not isinstance(item, type):
        module = inspect.getmodule(item)
        assert module
        source = module_source(module).members[item.__name__]
        assert isinstance(source, griffe.Function)
        yield f"### `{_signature(source)}`"
        yield from _text(source)
        return
    source = source_of(item)
    assert source, item
    yield f"### {item.__name__}"
    if _is_made_by_programs(item):
        yield f"```python\n{_constructor(item)}\n```"
    yield from _text(source, _properties(source))
    for method in _methods(source):
        yield f"#### `{_signature(method)}`"
        yield from _text(method)


def _is_made_by_programs(kind: type) -> bool:
    """Whether it is a value that programs give, and not one that they are given."""
    is_given = any(kind.__name__ in names for title, names in GROUPS.items() if title != "Reading")
    return is_given and (issubclass(kind, msgspec.Struct) or is_dataclass(kind))


def _constructor(kind: type) -> str:
    """How a value is made: names and defaults of its fields."""
    parameters = inspect.signature(kind).parameters.values()
    fields = [parameter.replace(annotation=parameter.empty) for parameter in parameters]
    return f"{kind.__name__}{inspect.Signature(fields)}"


def _methods(source: griffe.Class) -> Iterator[griffe.Function]:
    """The public methods of a class that have a docstring, in the order of the source."""
    for name, member in source.members.items():
        if isinstance(member, griffe.Function) and not name.startswith("_") and member.docstring:
            yield member


def _properties(source: griffe.Class) -> list[list[str]]:
    """Rows for properties with a docstring, and for the values of an enumeration."""
    return [
        [f"`{name}`", _annotation(member.annotation), _inline(member.docstring.value)]
        for name, member in source.members.items()
        if isinstance(member, griffe.Attribute) and not name.startswith("_") and member.docstring
    ]


def _text(source: griffe.Object, further: list[list[str]] | None = None) -> Iterator[str]:
    """A docstring as Markdown: prose, then a table for each of its sections."""
    attributes = further or []
    for section in sections_of(source):
        if section.kind is _Part.text:
            yield _markdown(section.value)
        elif section.kind is _Part.attributes:
            attributes = [*_rows(section.value, source), *attributes]
        elif section.kind in (_Part.parameters, _Part.other_parameters):
            yield table(["argument", "type", "meaning"], _rows(section.value, source))
        elif section.kind in (_Part.returns, _Part.yields):
            yield f"Returns: {_inline(' '.join(part.description for part in section.value))}"
        elif section.kind is _Part.admonition:
            yield _markdown(f"{section.title}::\n\n{indent(section.value.contents, '    ')}")
    if raised := _raised(source):
        yield f"Raises: {raised}"
    if attributes:
        yield table(["attribute", "type", "meaning"], attributes)


def _raised(source: griffe.Object) -> str:
    """The section as it stands: one line may name several errors, or give no reason."""
    text = inspect.cleandoc(source.docstring.value if source.docstring else "")
    section = text.partition("Raises:\n")[2].partition("\n\n")[0]
    return _inline(re.sub(r"^\s*([A-Z]\w+(?:, [A-Z]\w+)*)(?=:|$)", r"`\1`", section, flags=re.M))


def _rows(values: list[Any], source: griffe.Object) -> list[list[str]]:
    return [
        [f"`{value.name}`", _annotation(value.annotation), _inline(value.description)]
        for value in values
    ]


def _annotation(annotation: Any) -> str:
    return f"`{annotation}`" if annotation else ""


def _inline(text: str) -> str:
    return capital(_plain(" ".join(text.partition("Example::")[0].split())))


def _markdown(text: str) -> str:
    """Prose with roles as code, and literal blocks as fenced ones."""
    parts: list[str] = []
    place = 0
    for block in _LITERAL.finditer(f"{text}\n"):
        parts += [_plain(text[place : block.start()]), f":\n\n{_fenced(block[1])}\n"]
        place = block.end()
    return "".join([*parts, _plain(text[place:])]).strip()


def _plain(text: str) -> str:
    return _ROLE.sub(_shown_role, text).replace("``", "`")


def _fenced(code: str) -> str:
    return f"```python\n{dedent(code).strip()}\n```"


def _shown_role(role: re.Match[str]) -> str:
    return f"`{role[1].removeprefix('penstock.jobs.').removeprefix('penstock.')}`"


def _signature(function: griffe.Function) -> str:
    """Names and defaults; types stand in the table of arguments."""
    parts: list[str] = []
    keyword_only = False
    for parameter in function.parameters:
        if parameter.name in ("self", "cls"):
            continue
        if parameter.kind is griffe.ParameterKind.keyword_only and not keyword_only:
            parts.append("*")
            keyword_only = True
        mark = _STARS.get(parameter.kind, "")
        keyword_only = keyword_only or mark == "*"
        default = f"={parameter.default}" if parameter.default and not mark else ""
        parts.append(f"{mark}{parameter.name}{default}")
    returned = f" -> {function.returns}" if function.returns else ""
    begin = "await " if "async" in function.labels else ""
    if any("contextmanager" in str(decorator.value) for decorator in function.decorators):
        begin = "async with " if begin or "AsyncIterator" in returned else "with "
        returned = returned.replace("AsyncIterator[", "").replace("Iterator[", "").rstrip("]")
    return f"{begin}{function.name}({', '.join(parts)}){returned}"


_STARS: dict[Any, str] = {
    griffe.ParameterKind.var_positional: "*",
    griffe.ParameterKind.var_keyword: "**",
}
