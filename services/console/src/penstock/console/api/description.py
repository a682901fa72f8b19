"""The API's description, with the exact types of bodies and answers.

Litestar makes paths and parameters; of msgspec's types it leaves out limits, and that unknown
fields are refused. The schemas of bodies and answers are therefore those of msgspec itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args, get_origin

import msgspec
from litestar import Litestar, Response
from litestar.handlers import HTTPRouteHandler
from litestar.routes import HTTPRoute

from penstock.console.web.bodies import takes_nothing
from penstock.console.web.problems import MEDIA_TYPE, Problem

_REFERENCE = "#/components/schemas/{name}"
_JSON = "application/json"
Document = dict[str, Any]


def describe(app: Litestar) -> Document:
    """OpenAPI 3.1 of an application."""
    document: Document = app.openapi_schema.to_schema()
    operations = [*_operations(app, document)]
    kinds = [kind for _, handler in operations for kind in _kinds(handler) if kind is not None]
    unique = list(dict.fromkeys([*kinds, Problem]))
    schemas, components = msgspec.json.schema_components(unique, ref_template=_REFERENCE)
    schema_of = dict(zip(unique, schemas, strict=True))
    for operation, handler in operations:
        body, answer = _kinds(handler)
        if body is not None:
            data = handler.parsed_data_field
            is_required = (data is None or not data.has_default) and not takes_nothing(body)
            operation["requestBody"] = {"required": is_required, "content": _json(schema_of[body])}
        responses = operation["responses"]
        responses.pop("400", None)
        content = responses[str(handler.status_code)]
        if answer is not None:
            content["content"] = _json(schema_of[answer])
        elif "content" in content:
            content["content"] = {str(handler.media_type): {"schema": {"type": "string"}}}
        responses["default"] = {
            "description": "It failed: problem details (RFC 9457).",
            "content": {MEDIA_TYPE: {"schema": schema_of[Problem]}},
        }
    document["components"]["schemas"] = components
    return document


def _json(schema: Document) -> Document:
    return {_JSON: {"schema": schema}}


def _operations(app: Litestar, document: Document) -> Iterator[tuple[Document, HTTPRouteHandler]]:
    for route in app.routes:
        path = document["paths"].get(route.path_format)
        if path is None or not isinstance(route, HTTPRoute):
            continue
        for handler in route.route_handlers:
            for method in handler.http_methods:
                if (operation := path.get(str(method).lower())) is not None:
                    yield operation, handler


def _kinds(handler: HTTPRouteHandler) -> tuple[Any, Any]:
    """Types of the body and of the answer; None where there is none, or it is no JSON."""
    data = handler.parsed_data_field
    answer = handler.parsed_return_field.annotation
    origin = get_origin(answer) or answer
    if isinstance(origin, type) and issubclass(origin, Response):
        [answer] = get_args(answer) or [None]
    return (data.annotation if data else None), (None if answer in (type(None), bytes) else answer)
