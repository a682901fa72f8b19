"""What docstrings say, read by griffe from the source; used by the generated pages."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

import griffe
import msgspec


def meanings_of(kind: type[msgspec.Struct]) -> dict[str, str]:
    """The meaning of each field of a struct, inherited fields included.

    It stands in the section ``Attributes:`` of the class, or in a string below the field.
    """
    meanings: dict[str, str] = {}
    for parent in reversed(kind.__mro__):
        if parent is not msgspec.Struct and issubclass(parent, msgspec.Struct):
            meanings |= dict(_declared(parent))
    return meanings


def _declared(kind: type) -> Iterator[tuple[str, str]]:
    source = source_of(kind)
    if source is None:
        return
    for section in sections_of(source):
        if isinstance(section, griffe.DocstringSectionAttributes):
            for attribute in section.value:
                yield attribute.name.strip("`"), capital(" ".join(attribute.description.split()))
    yield from attribute_docstrings(source)


def attribute_docstrings(scope: griffe.Module | griffe.Class) -> Iterator[tuple[str, str]]:
    """Name and text of each attribute that has a string below it, in the order of the source."""
    for name, attribute in scope.attributes.items():
        if attribute.docstring is not None:
            yield name, " ".join(attribute.docstring.value.split())


def prose(kind: type) -> str:
    """The text of a class's docstring, without its sections."""
    source = source_of(kind)
    sections = sections_of(source) if source is not None else []
    texts = [part.value for part in sections if isinstance(part, griffe.DocstringSectionText)]
    return "\n\n".join(texts).strip().replace("``", "`")


def sections_of(source: griffe.Object) -> list[griffe.DocstringSection]:
    """The parts of a docstring: text, arguments, errors and so on."""
    return source.docstring.parse("google", warnings=False) if source.docstring is not None else []


def source_of(kind: type) -> griffe.Class | None:
    """The class as its source declares it; None for one that was made at run time."""
    module = inspect.getmodule(kind)
    member = module_source(module).members.get(kind.__name__) if module is not None else None
    return member if isinstance(member, griffe.Class) else None


@cache
def module_source(module: ModuleType) -> griffe.Module:
    """A module as griffe reads it from its file."""
    path = Path(inspect.getfile(module))
    return griffe.visit(module.__name__, filepath=path, code=path.read_text("utf-8"))


def capital(text: str) -> str:
    """The text with a capital first letter."""
    return text[:1].upper() + text[1:]
