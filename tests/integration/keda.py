"""KEDA as the external scaler sees it: a gRPC client that calls the four methods."""

from __future__ import annotations

from types import TracebackType
from typing import Any

import grpc

from penstock.decider.scaler import protocol

CALL_SECONDS = 10.0


class Keda:
    """One connection.

    Args:
        place: ``host:port``.
        credentials: of the channel; None for plain text.
    """

    def __init__(self, place: str, credentials: grpc.ChannelCredentials | None = None) -> None:
        aio = grpc.aio
        # else a server that comes back is looked for seconds later only
        options = [("grpc.max_reconnect_backoff_ms", 200)]
        self._channel = (
            aio.insecure_channel(place, options)
            if credentials is None
            else aio.secure_channel(place, credentials, options)
        )

    async def __aenter__(self) -> Keda:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._channel.close()

    async def pods(self, pool: str = "emails", **metadata: str) -> int:
        """What the horizontal pod autoscaler would want: the value over the target, rounded up."""
        reference = reference_of(pool, **metadata)
        spec = (await self.call("GetMetricSpec", reference)).metricSpecs[0]
        asked = protocol.GetMetricsRequest(scaledObjectRef=reference, metricName=spec.metricName)
        [value] = (await self.call("GetMetrics", asked)).metricValues
        assert (value.metricName, float(value.metricValue)) == (
            spec.metricName,
            value.metricValueFloat,
        )
        return int(-(-value.metricValueFloat // spec.targetSizeFloat))

    async def is_active(self, pool: str = "emails") -> bool:
        answer = await self.call("IsActive", reference_of(pool))
        return bool(answer.result)

    async def call(self, method: str, message: Any, answer: Any = None) -> Any:
        """One call. Raises grpc.aio.AioRpcError."""
        kind = answer or _ANSWERS[method]
        send = self._channel.unary_unary(
            f"/{protocol.SERVICE}/{method}",
            request_serializer=bytes if isinstance(message, bytes) else _bytes,
            response_deserializer=bytes if kind is bytes else kind.FromString,
        )
        return await send(message, timeout=CALL_SECONDS)

    def stream(self, pool: str = "emails") -> Any:
        """An open `StreamIsActive`, to be read and cancelled by the caller."""
        send = self._channel.unary_stream(
            f"/{protocol.SERVICE}/StreamIsActive",
            request_serializer=_bytes,
            response_deserializer=protocol.IsActiveResponse.FromString,
        )
        return send(reference_of(pool))


_ANSWERS = {
    "IsActive": protocol.IsActiveResponse,
    "GetMetricSpec": protocol.GetMetricSpecResponse,
    "GetMetrics": protocol.GetMetricsResponse,
}


def reference_of(pool: str, **metadata: str) -> Any:
    return protocol.ScaledObjectRef(
        name="shop", namespace="default", scalerMetadata={"pool": pool, **metadata}
    )


def _bytes(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return data
