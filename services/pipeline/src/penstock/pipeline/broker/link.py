"""A connection to the broker for blocking code, as Spark calls a data source from.

Not `bus.connection`, which needs the settings of an installation and reconnects without end: a data
source has only the options of its query, and a task whose broker is away must fail within seconds,
so that Spark runs it again. Wire protocol, credentials and pulls are the bus's.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TypeVar

import nats.errors

from penstock.bus import access
from penstock.bus.protocol import BusRefused, BusUnavailable
from penstock.bus.wire import WireClient
from penstock.config.masking import masked
from penstock.pipeline.core.options import Reach
from penstock.pipeline.core.ranges import Extent

T = TypeVar("T")

_NO_MESSAGE = 10037
_PENDING_BYTES = 64 * 1024 * 1024


class Link:
    """One connection; its loop runs in a thread of its own. A context manager.

    Raises:
        ConfigError: no server is named.
        BusUnavailable: no server responds, or the connection broke.
        BusRefused: the server refuses the credentials or a request.
    """

    def __init__(self, reach: Reach) -> None:
        self.client = WireClient()
        self.client.broker_user = reach.broker_user
        self._reach = reach
        self._refused, self._refusal = asyncio.Event(), ""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        try:
            self.run(self._connect())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with suppress(Exception):
            self.run(self.client.close())
        self._end()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.start(self.in_time(work)).result()

    async def in_time(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            async with asyncio.timeout(self._reach.timeout_seconds):
                return await access.unless_refused(self._refused, work)
        except access.NotPermitted:
            raise BusRefused(
                f"NATS at {masked(self._reach.servers)}: {self._refusal}; in a guarded "
                "installation give the key of the role 'pipeline' (nkey_file)"
            ) from None
        except (nats.errors.Error, TimeoutError, OSError) as error:
            raise BusUnavailable(f"NATS at {masked(self._reach.servers)}: {error!r}") from error

    async def _on_error(self, error: Exception) -> None:
        """Notes a refusal; other errors show as requests without a response."""
        if "permissions violation" in str(error).lower():
            self._refusal = str(error)
            self._refused.set()

    async def _connect(self) -> None:
        reach = self._reach
        await self.client.connect(
            name="penstock-pipeline",
            allow_reconnect=False,  # `read_range` continues by sequence, on a new connection
            connect_timeout=2,
            pending_size=_PENDING_BYTES,
            error_cb=self._on_error,
            **access.options(
                reach.servers,
                nkey_file=reach.nkey,
                credentials_file=reach.credentials,
                token=reach.token,
                user=reach.user,
                password=reach.password,
                ca_file=reach.ca_file,
            ),
        )

    async def ask(self, verb: str, body: Any = None) -> dict[str, Any]:
        """One request to the JetStream API."""
        raw = b"" if body is None else json.dumps(body).encode()
        try:
            message = await self.client.request(
                f"$JS.API.{verb}", raw, timeout=self._reach.timeout_seconds
            )
        except nats.errors.NoRespondersError:
            raise BusRefused("the broker runs without JetStream; start it with -js") from None
        answer: dict[str, Any] = json.loads(message.data)
        if (error := answer.get("error")) and error.get("err_code") != _NO_MESSAGE:
            raise BusRefused(f"{verb}: {error.get('description')}")
        return answer

    def extent(self, stream: str) -> Extent:
        info = self.run(self.ask(f"STREAM.INFO.{stream}"))
        state = info["state"]
        return Extent(first=state["first_seq"], last=state["last_seq"], made=info["created"])

    def next_sequence(self, stream: str, subject: str, sequence: int) -> int | None:
        """Of the next message at or behind ``sequence``, as the stream's leader has it."""
        request = {"seq": sequence, "next_by_subj": subject}
        answer = self.run(self.ask(f"STREAM.MSG.GET.{stream}", request))
        return None if "error" in answer else int(answer["message"]["seq"])
