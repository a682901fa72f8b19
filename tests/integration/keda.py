"""KEDA as the external scaler sees it, and an installation whose pool it scales."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import Any

import grpc
import pytest
from tests.installation import RunningService
from tests.integration.deciding import EMAILS, QUICK, World
from tests.waiting import eventually

from penstock.decider.scaler import app, protocol
from penstock.runtime.paths import free_port

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


BUSY = {"arrival_per_second": 5.0}  # 10 workers by hybrid
ADVISED = {**EMAILS["emails"], "advisor": True}
POOLS = {"emails": ADVISED, "own": {"min_workers": 1}}
WITHIN = 20.0


class Site(World):
    """A world with scalers, in which measurements of the pool go on until they are changed."""

    def __init__(self, kind: str, make: Any, **scaler: Any) -> None:
        self.port = free_port()
        tables = {"port": self.port, "stale_seconds": 1.5, **scaler}
        super().__init__(kind, make, pools=POOLS, decider=QUICK, scaler=tables)
        self.make = make
        self._reporting: asyncio.Task[None] | None = None

    async def measure(self, **fields: Any) -> None:
        """Reports these figures again and again, as a metrics service does."""
        self.silence()
        await self.report(**fields)
        self._reporting = asyncio.create_task(self._go_on(fields))

    def silence(self) -> None:
        if self._reporting:
            self._reporting.cancel()
            self._reporting = None

    async def _go_on(self, fields: dict[str, Any]) -> None:
        while True:
            await asyncio.sleep(0.2)
            await self.report(**fields)

    async def start_scaler(self) -> RunningService:
        running = RunningService("scaler", self.settings, await self.client(), app.body)
        self._services.append(running)
        return running

    async def close(self) -> None:
        self.silence()
        await super().close()


async def answered(ask: Callable[[], Awaitable[Any]], expected: Any) -> None:
    """Waits until KEDA gets this answer; errors meanwhile are none."""

    async def asked() -> bool:
        with suppress(grpc.aio.AioRpcError):
            return bool(await ask() == expected)
        return False

    await eventually(asked, WITHIN, f"answer {expected}")


async def refused(ask: Callable[[], Awaitable[Any]]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await ask()
    return caught.value.code(), caught.value.details() or ""


async def refused_at_last(ask: Callable[[], Awaitable[Any]], text: str) -> grpc.StatusCode:
    """Waits until KEDA gets an error with this text."""
    codes: list[grpc.StatusCode] = []

    async def asked() -> bool:
        try:
            await ask()
        except grpc.aio.AioRpcError as error:
            codes.append(error.code())
            return text in (error.details() or "")
        return False

    await eventually(asked, WITHIN, f"error {text!r}")
    return codes[-1]
