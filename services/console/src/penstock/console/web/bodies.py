"""Bodies of requests, read by exactly the types that the API's description shows.

Litestar converts JSON leniently: ``0`` would pass for ``false`` and ``"5"`` for 5.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from functools import lru_cache
from typing import Any

import msgspec
from litestar import Request
from litestar.dto import AbstractDTO, DTOConfig
from litestar.dto.data_structures import DTOFieldDefinition
from litestar.exceptions import ValidationException
from litestar.typing import FieldDefinition
from msgspec import inspect

_AT = re.compile(r" - at `\$(?P<path>[^`]*)`$")


class StrictBody(AbstractDTO[Any]):
    """Decodes the body of a handler whose ``data`` is a msgspec type."""

    config = DTOConfig()
    model_type = object

    def decode_bytes(self, value: bytes) -> Any:
        """The body as the handler's type.

        Raises:
            ValidationException: it is no JSON, or not of that type; says where.
        """
        handler: Any = self.asgi_connection.route_handler
        return read(value, handler.parsed_data_field.annotation)

    @classmethod
    def create_for_field_definition(cls, *_: Any, **__: Any) -> None:
        """Nothing is generated."""

    @classmethod
    def create_openapi_schema(
        cls, field_definition: FieldDefinition, handler_id: str, schema_creator: Any
    ) -> Any:
        """The schema of the type itself."""
        del handler_id
        return schema_creator.for_field_definition(field_definition)

    @classmethod
    def generate_field_definitions(
        cls, model_type: type[Any]
    ) -> Generator[DTOFieldDefinition, None, None]:
        """None: nothing is generated."""
        del model_type
        yield from ()

    @classmethod
    def detect_nested_field(cls, field_definition: FieldDefinition) -> bool:
        """No: nothing is generated."""
        del field_definition
        return False


class BodyMayBeAbsent(Request[Any, Any, Any]):
    """A request whose body may be left out where nothing in it is required."""

    async def body(self) -> bytes:
        """What was sent; of nothing, the empty object where the handler takes that.

        Raises:
            ValidationException: a body is needed; says which fields.
        """
        sent = await super().body()
        handler: Any = self.route_handler
        field = handler.parsed_data_field
        if sent or field is None or field.has_default:
            return sent
        try:
            read(b"{}", field.annotation)
        except ValidationException as error:
            raise ValidationException("a JSON body is needed", extra=error.extra) from None
        return b"{}"


def read(body: bytes, kind: Any) -> Any:
    """A body as a type. Raises ValidationException: it is none; says where."""
    try:
        return _decoder(kind).decode(body)
    except msgspec.ValidationError as error:
        raise _invalid(str(error), kind) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _invalid(f"the body is no JSON: {error}") from error


def takes_nothing(kind: Any) -> bool:
    """Whether no field of a type is required, so that its body may be left out."""
    try:
        read(b"{}", kind)
    except ValidationException:
        return False
    return True


def _invalid(text: str, kind: Any = None) -> ValidationException:
    place = _AT.search(text)
    key = place["path"].lstrip(".").replace("[", ".").replace("]", "") if place else ""
    message = _AT.sub("", text)
    if "unknown field" in message and (names := _fields(kind, key)):
        message += f"; known are {', '.join(names)}"
    return ValidationException(
        "the body is not as expected", extra=[{"key": key, "message": message}]
    )


def _fields(kind: Any, key: str) -> list[str]:
    """Names of the fields at a place such as ``matchers.0``; none where that is no struct."""
    at: inspect.Type | None = inspect.type_info(kind)
    for step in [*filter(None, key.split(".")), ""]:
        if isinstance(at, inspect.UnionType):
            at = next((one for one in at.types if not isinstance(one, inspect.NoneType)), None)
        if isinstance(at, inspect.StructType) and step:
            at = next((one.type for one in at.fields if one.encode_name == step), None)
        elif isinstance(at, inspect.VarTupleType | inspect.ListType):
            at = at.item_type
    return [one.encode_name for one in at.fields] if isinstance(at, inspect.StructType) else []


@lru_cache(maxsize=500)
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)
