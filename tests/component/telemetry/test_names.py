"""Names that leave the process: declared once, documented, in the shape the conventions ask for."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.semconv._incubating.attributes import messaging_attributes
from opentelemetry.semconv.attributes import error_attributes

from penstock.telemetry import names


def declared() -> Iterator[tuple[str, str, str | None]]:
    """(constant, value, docstring below it) of each attribute name."""
    body = ast.parse(Path(names.__file__).read_text("utf-8")).body
    for here, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(here, ast.AnnAssign) and isinstance(here.target, ast.Name):
            said = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            value = getattr(names, here.target.id)
            yield here.target.id, value, str(after.value.value) if said else None


@pytest.mark.parametrize(("constant", "value", "said"), tuple(declared()))
def test_each_name_says_what_it_means(constant: str, value: str, said: str | None) -> None:
    assert said, f"{constant} has no docstring"
    assert re.fullmatch(r"[a-z_]+(\.[a-z_]+)*", value)


def test_no_name_is_declared_twice() -> None:
    values = [value for _, value, _ in declared()]
    assert len(values) == len(set(values))


def test_what_claims_to_follow_the_conventions_does() -> None:
    known = {
        value
        for module in (messaging_attributes, error_attributes)
        for name, value in vars(module).items()
        if name.isupper() and isinstance(value, str)
    }
    claimed = {v for _, v, _ in declared() if v.startswith(("messaging.", "error."))}
    assert claimed <= known


def test_everything_else_is_ours() -> None:
    foreign = {
        value for _, value, _ in declared() if "." in value and not value.startswith("penstock.")
    }
    assert all(name.startswith(("messaging.", "error.")) for name in foreign)


@pytest.mark.parametrize(
    ("span", "name"),
    [
        (names.dispatch("reports"), "dispatch reports"),
        (names.run("shop.rebuild"), "run shop.rebuild"),
        (names.spark("query"), "spark query"),
        (names.measure("reports"), "measure reports"),
        (names.decide("reports"), "decide reports"),
        (names.command("host-a"), "command host-a"),
        (names.spawn("reports"), "spawn reports"),
        (names.first_job("reports"), "first job reports"),
    ],
)
def test_span_names(span: str, name: str) -> None:
    assert span == name
