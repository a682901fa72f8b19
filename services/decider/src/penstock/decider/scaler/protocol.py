"""KEDA's protocol `externalscaler.ExternalScaler`, declared without generated code.

After pkg/scalers/externalscaler/externalscaler.proto of KEDA 2.22. `StreamMetricSpec`, which 2.21
added, is optional, and KEDA falls back to `GetMetricSpec`; targets never change here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from google.protobuf import (  # type: ignore[import-untyped]
    descriptor_pb2,
    descriptor_pool,
    message_factory,
)

SERVICE = "externalscaler.ExternalScaler"

_PACKAGE, _SYNTAX = "externalscaler", "proto3"
_Field = descriptor_pb2.FieldDescriptorProto
_TEXT, _WHOLE, _REAL, _YES_NO = (
    _Field.TYPE_STRING,
    _Field.TYPE_INT64,
    _Field.TYPE_DOUBLE,
    _Field.TYPE_BOOL,
)


def _field(number: int, name: str, kind: int | str, *, repeated: bool = False) -> Any:
    """A field of a message; ``kind`` is a scalar type, or the name of another message."""
    label = _Field.LABEL_REPEATED if repeated else _Field.LABEL_OPTIONAL
    if isinstance(kind, int):
        return _Field(name=name, number=number, label=label, type=kind)
    full = f".{_PACKAGE}.{kind}"
    message = _Field.TYPE_MESSAGE
    return _Field(name=name, number=number, label=label, type=message, type_name=full)


def _message(name: str, fields: Sequence[Any], nested: Sequence[Any] = ()) -> Any:
    return descriptor_pb2.DescriptorProto(name=name, field=fields, nested_type=nested)


def _file() -> Any:
    """The descriptor of the .proto file, as far as messages go."""
    entry = _message("ScalerMetadataEntry", [_field(1, "key", _TEXT), _field(2, "value", _TEXT)])
    entry.options.map_entry = True
    metadata = "ScaledObjectRef.ScalerMetadataEntry"
    reference = [
        _field(1, "name", _TEXT),
        _field(2, "namespace", _TEXT),
        _field(3, "scalerMetadata", metadata, repeated=True),
    ]
    spec = [
        _field(1, "metricName", _TEXT),
        _field(2, "targetSize", _WHOLE),
        _field(3, "targetSizeFloat", _REAL),
    ]
    request = [_field(1, "scaledObjectRef", "ScaledObjectRef"), _field(2, "metricName", _TEXT)]
    value = [
        _field(1, "metricName", _TEXT),
        _field(2, "metricValue", _WHOLE),
        _field(3, "metricValueFloat", _REAL),
    ]
    messages = [
        _message("ScaledObjectRef", reference, [entry]),
        _message("IsActiveResponse", [_field(1, "result", _YES_NO)]),
        _message("GetMetricSpecResponse", [_field(1, "metricSpecs", "MetricSpec", repeated=True)]),
        _message("MetricSpec", spec),
        _message("GetMetricsRequest", request),
        _message("GetMetricsResponse", [_field(1, "metricValues", "MetricValue", repeated=True)]),
        _message("MetricValue", value),
    ]
    return descriptor_pb2.FileDescriptorProto(
        name="externalscaler.proto", package=_PACKAGE, syntax=_SYNTAX, message_type=messages
    )


# a pool of its own: a program that also imports KEDA's generated module has the same names there
_POOL = descriptor_pool.DescriptorPool()
_POOL.Add(_file())


def _class(name: str) -> Any:
    descriptor = _POOL.FindMessageTypeByName(f"{_PACKAGE}.{name}")
    return message_factory.GetMessageClass(descriptor)


ScaledObjectRef = _class("ScaledObjectRef")
IsActiveResponse = _class("IsActiveResponse")
GetMetricSpecResponse = _class("GetMetricSpecResponse")
MetricSpec = _class("MetricSpec")
GetMetricsRequest = _class("GetMetricsRequest")
GetMetricsResponse = _class("GetMetricsResponse")
MetricValue = _class("MetricValue")
