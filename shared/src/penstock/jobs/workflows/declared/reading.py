"""Definitions from Python values, JSON and TOML, and back.

Where a person writes, a condition and a path may be text (see :mod:`.text`); what is stored has
them as data.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from penstock.events.graph import Rule
from penstock.jobs.errors import JobRefused
from penstock.jobs.workflows.declared import text
from penstock.jobs.workflows.declared.definition import MAX_BYTES, Definition, canonical
from penstock.jobs.workflows.declared.validation import BadDefinition, checked


def from_toml(document: str | bytes) -> Definition:
    """Reads and checks a definition.

    Args:
        document: TOML with the fields of a definition, the steps as ``[[steps]]``.

    Raises:
        BadDefinition
    """
    _check_size(document)
    try:
        encoded = document.decode() if isinstance(document, bytes) else document
        return from_values(tomllib.loads(encoded))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadDefinition(f"this is no TOML: {error}") from None


def from_json(document: str | bytes) -> Definition:
    """Reads and checks a definition.

    Args:
        document: a JSON object with the fields of a definition.

    Raises:
        BadDefinition
    """
    _check_size(document)
    try:
        return from_values(msgspec.json.decode(document))
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise BadDefinition(f"this is no JSON: {error}") from None


def to_json(definition: Definition) -> bytes:
    """The JSON form, which :func:`from_json` reads."""
    return canonical(definition)


def from_values(values: Any) -> Definition:
    """Reads and checks a definition that consists of plain dicts, lists, text and numbers.

    Raises:
        BadDefinition: names the step and the field.

    Example::

        from_values({
            "name": "nightly",
            "steps": [
                {"name": "extract", "function": "shop.extract"},
                {"name": "load", "function": "shop.load", "needs": ["extract"],
                 "takes": {"rows": "results.extract"}, "when": "results.extract > 0"},
            ],
        })
    """
    try:
        return checked(msgspec.convert(_as_data(values), Definition))
    except msgspec.ValidationError as error:
        raise BadDefinition(_with_name(str(error), values)) from None
    except RecursionError:
        raise BadDefinition("the definition is nested too deeply") from None


def _check_size(document: str | bytes) -> None:
    if len(document) > MAX_BYTES:
        raise BadDefinition(
            f"a definition has at most {MAX_BYTES:,} bytes, found {len(document):,}"
        )


def _with_name(error: str, values: Any) -> str:
    """msgspec names a step by its position; people know it by its name."""
    position = error.partition("$.steps[")[2].partition("]")[0]
    if not position.isdecimal():
        return error
    step = values["steps"][int(position)]
    name = step.get("name") if isinstance(step, Mapping) else None
    return f"step {name!r}: {error}" if name else error


# --- text to data ---------------------------------------------------------------------------------
def _as_data(values: Any) -> Any:
    if isinstance(values, Mapping) and "returns" in values:
        values = {**values, "returns": _returned(values["returns"])}
    if not isinstance(values, Mapping) or not isinstance(values.get("steps"), list | tuple):
        return values  # msgspec reports what is wrong with it
    return {**values, "steps": [_step(step) for step in values["steps"]]}


def _returned(paths: Any) -> Any:
    try:
        return _paths(paths)
    except JobRefused as error:
        raise BadDefinition(f"returns: {error}") from None


def _step(step: Any) -> Any:
    if not isinstance(step, Mapping):
        return step
    _check_rule(step)
    changes: dict[str, Callable[[Any], Any]] = {
        "when": _condition,
        "takes": _paths,
        "sets": _result_paths,
        "branch": _branch,
        "compensate": _call,
    }
    try:
        return _changed(step, changes)
    except JobRefused as error:
        raise BadDefinition(f"step {step.get('name')!r}: {error}") from None


_OTHER_RULES = {
    "one_failed": "any_failed",
    "one_success": "any_success",
    "always": "all_done",
    "none_failed_min_one_success": "none_failed",
}
"""What comes nearest to names of Airflow's."""


def _check_rule(step: Mapping[str, Any]) -> None:
    rule, rules = step.get("rule", Rule.NONE_FAILED), [rule.value for rule in Rule]
    if rule not in rules:
        near = _OTHER_RULES.get(str(rule)) or next(
            iter(difflib.get_close_matches(str(rule), rules, n=1)), ""
        )
        hint = f"; did you mean {near!r}?" if near else ""
        raise BadDefinition(
            f"step {step.get('name')!r}: unknown trigger rule {rule!r}; expected one of "
            f"{', '.join(rules)}{hint}"
        )


def _changed(values: Any, changes: Mapping[str, Callable[[Any], Any]]) -> Any:
    if not isinstance(values, Mapping):
        return values
    return {key: changes[key](value) if key in changes else value for key, value in values.items()}


def _condition(value: Any) -> Any:
    if isinstance(value, str):
        return msgspec.to_builtins(text.parse_condition(value))
    return _condition_data(value)


def _condition_data(value: Any) -> Any:
    """Text in place of a path, within a condition that is data."""
    if isinstance(value, list | tuple):
        return [_condition_data(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    return {
        key: _path(item) if key in {"ref", "exists"} else _condition_data(item)
        for key, item in value.items()
    }


def _path(value: Any) -> Any:
    return text.parse_path(value) if isinstance(value, str) else value


def _paths(value: Any) -> Any:
    return (
        {name: _path(path) for name, path in value.items()} if isinstance(value, Mapping) else value
    )


def _result_paths(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    return {
        key: text.parse_result_path(path) if isinstance(path, str) else path
        for key, path in value.items()
    }


def _call(value: Any) -> Any:
    return _changed(value, {"takes": _paths})


def _branch(value: Any) -> Any:
    def cases(calls: Any) -> Any:
        if not isinstance(calls, Mapping):
            return calls
        return {case: _call(call) for case, call in calls.items()}

    return _changed(value, {"on": _path, "cases": cases, "otherwise": _call})
