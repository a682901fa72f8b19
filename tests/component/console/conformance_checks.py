"""Hooks of schemathesis for this API; loaded by its command, not by pytest."""

from __future__ import annotations

import re
from typing import Any

import schemathesis
from schemathesis import Case, CheckContext, GenerationMode, HookContext, Response
from schemathesis.generation.meta import TestPhase

_BAD_REQUEST = 400
_OF_FORM = re.compile(r"^(Expected |Object |Invalid enum value)")
_INTEGRAL = re.compile(r"^Expected `int[^`]*`, got `float`$")
"""JSON Schema takes 5.0 for an integer; the console asks for 5."""

_CALL = {"function": "shop.load", "queue": "reports"}
_TAKEN: dict[str, Any] = {
    **_CALL,
    "arguments": {},
    "calls": [_CALL],
    "condition": {"kind": "host-lost"},
    "context": {},
    "definition": {"name": "nightly", "steps": [{"name": "load", **_CALL}]},
    "kind": "log",
    "path": "/jobs",
    "pools": [],
    "priority": "normal",
    "queues": [],
}


@schemathesis.check
def a_request_as_described_is_understood(ctx: CheckContext, response: Response, case: Case) -> None:
    """It may be refused for what it means, such as a cursor of another list, not for its form.

    Stands for `positive_data_acceptance`, which a description can never satisfy in such cases. The
    console lists in `errors` where a request is not of the form that it describes.
    """
    del ctx
    is_valid = case.meta is not None and case.meta.generation.mode is GenerationMode.POSITIVE
    if not is_valid or response.status_code != _BAD_REQUEST:
        return
    details = [error["detail"] for error in response.json().get("errors", ())]
    of_form = [one for one in details if _OF_FORM.match(one) and not _INTEGRAL.match(one)]
    assert not of_form, of_form


@schemathesis.hook
def before_call(ctx: HookContext, case: Case, kwargs: dict[str, Any]) -> None:
    """Requests that follow another read whole lists, and make things that the console takes.

    What is drawn for a filter matches nothing, and what is drawn for a definition is refused:
    nothing would be left to go on from.
    """
    del ctx, kwargs
    if case.meta is None or case.meta.phase.name is not TestPhase.STATEFUL:
        return
    case.query = {}
    for name, value in case.path_parameters.items():
        case.path_parameters[name] = value or "none"  # of what an answer does not name
    if case.method == "POST" and isinstance(case.body, dict):
        taken = {**_TAKEN, "id": case.id}
        case.body |= {name: value for name, value in taken.items() if name in case.body}
