"""The four methods that KEDA calls."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from typing import Any, NoReturn

import grpc  # type: ignore[import-untyped]

from penstock.decider.core import advised
from penstock.decider.scaler import protocol
from penstock.decider.scaler.decisions import Decisions, NoDemand, NotAdvised, UnknownPool

KEYS = ("pool", "workersPerPod")
"""Metadata of a trigger that is ours; KEDA passes on all of it."""
_BY_LETTERS = {key.lower(): key for key in KEYS}
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_PER_POD = re.compile(r"[0-9]{1,4}")
_TARGET = 1
"""With it the horizontal pod autoscaler wants as many pods as the value says."""
_STATUS = {
    UnknownPool: grpc.StatusCode.NOT_FOUND,
    NotAdvised: grpc.StatusCode.FAILED_PRECONDITION,
    NoDemand: grpc.StatusCode.UNAVAILABLE,
}


class Servicer:
    """Answers from the newest decisions.

    An error keeps the replicas: KEDA does not scale by a trigger that fails, and uses the
    `fallback` of the `ScaledObject` where there is one.

    Args:
        decisions: followed by the service.
        max_streams: open at a time.
    """

    def __init__(self, decisions: Decisions, max_streams: int) -> None:
        self._decisions, self._max_streams = decisions, max_streams
        self.streams = 0

    def handlers(self) -> grpc.GenericRpcHandler:
        """For a server of `grpc.aio`."""
        reference, request = protocol.ScaledObjectRef, protocol.GetMetricsRequest
        return grpc.method_handlers_generic_handler(
            protocol.SERVICE,
            {
                "IsActive": _unary(self.is_active, reference),
                "StreamIsActive": grpc.unary_stream_rpc_method_handler(
                    self.stream_is_active,
                    request_deserializer=reference.FromString,
                    response_serializer=_serialized,
                ),
                "GetMetricSpec": _unary(self.get_metric_spec, reference),
                "GetMetrics": _unary(self.get_metrics, request),
            },
        )

    async def is_active(self, reference: Any, context: Any) -> Any:
        """Whether the pool needs a worker."""
        demand = await self._demand(await _pool(reference, context), context)
        return protocol.IsActiveResponse(result=demand > 0)

    async def stream_is_active(self, reference: Any, context: Any) -> AsyncIterator[Any]:
        """Reports when the pool needs a worker, at once and each time that it needs one again.

        That it needs none is left to `IsActive`: one trigger of several must not end the others'
        pods. While there is no demand to report the stream stays open, silent.
        """
        pool = await _pool(reference, context)
        await self._check(pool, context)
        if self.streams >= self._max_streams:
            await context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"{self.streams} streams are open, the most of scaler.max_streams",
            )
        self.streams += 1
        try:
            async for _ in self._awakenings(pool):
                yield protocol.IsActiveResponse(result=True)
        finally:
            self.streams -= 1

    async def get_metric_spec(self, reference: Any, context: Any) -> Any:
        """The metric's name, and its target. It needs no decision: KEDA makes an HPA by it."""
        pool = await _pool(reference, context)
        await self._check(pool, context)
        await _workers_per_pod(reference, context)
        spec = protocol.MetricSpec(
            metricName=_metric(pool), targetSize=_TARGET, targetSizeFloat=float(_TARGET)
        )
        return protocol.GetMetricSpecResponse(metricSpecs=[spec])

    async def get_metrics(self, request: Any, context: Any) -> Any:
        """The pods that the pool needs."""
        reference = request.scaledObjectRef
        pool = await _pool(reference, context)
        if request.metricName != _metric(pool):
            await _wrong(
                context,
                f"metricName: found {request.metricName[:80]!r}, expected {_metric(pool)!r}",
            )
        per_pod = await _workers_per_pod(reference, context)
        pods = advised.replicas(await self._demand(pool, context), per_pod)
        value = protocol.MetricValue(
            metricName=request.metricName, metricValue=pods, metricValueFloat=float(pods)
        )
        return protocol.GetMetricsResponse(metricValues=[value])

    async def _awakenings(self, pool: str) -> AsyncIterator[None]:
        """Each change from no demand, or from none that is known, to some."""
        was_active = False
        with self._decisions.watched(pool) as changed:
            while True:
                changed.clear()
                is_active = self._is_active(pool)
                if is_active and not was_active:
                    yield
                was_active = is_active
                await changed.wait()

    def _is_active(self, pool: str) -> bool:
        try:
            return self._decisions.demand(pool) > 0
        except NoDemand:
            return False

    async def _check(self, pool: str, context: Any) -> None:
        try:
            self._decisions.check(pool)
        except NoDemand as error:
            await _refuse(context, error)

    async def _demand(self, pool: str, context: Any) -> int:
        try:
            return self._decisions.demand(pool)
        except NoDemand as error:
            await _refuse(context, error)


def _unary(method: Any, kind: Any) -> Any:
    return grpc.unary_unary_rpc_method_handler(
        method, request_deserializer=kind.FromString, response_serializer=_serialized
    )


def _serialized(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return data


def _metric(pool: str) -> str:
    """Kubernetes takes lower case alone in names of metrics' paths."""
    return f"penstock-{pool.lower()}"


async def _pool(reference: Any, context: Any) -> str:
    metadata: Mapping[str, str] = reference.scalerMetadata
    # KEDA hands on keys of its own, too: only those that are meant for ours are refused.
    for key in metadata:
        meant = _BY_LETTERS.get(re.sub("[-_]", "", key).lower(), key)
        if meant != key:
            await _wrong(
                context, f"metadata of the trigger: found {key[:80]!r}, expected {meant!r}"
            )
    name = metadata.get(KEYS[0], "")
    if not _NAME.fullmatch(name):
        await _wrong(
            context,
            f"metadata of the trigger: found pool = {name[:80]!r}, expected the name of a pool",
        )
    return name


async def _workers_per_pod(reference: Any, context: Any) -> int:
    text: str = reference.scalerMetadata.get(KEYS[1], "1")
    if not _PER_POD.fullmatch(text) or not int(text):
        await _wrong(
            context,
            f"metadata of the trigger: found workersPerPod = {text[:80]!r}, expected 1 to 9999",
        )
    return int(text)


async def _wrong(context: Any, text: str) -> NoReturn:
    await context.abort(grpc.StatusCode.INVALID_ARGUMENT, text)
    raise AssertionError("abort raises")


async def _refuse(context: Any, error: NoDemand) -> NoReturn:
    await context.abort(_STATUS[type(error)], str(error))
    raise AssertionError("abort raises")
