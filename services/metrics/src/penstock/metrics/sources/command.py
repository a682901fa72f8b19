"""Kind ``command``: a program reads queue names as JSON and writes figures as JSON.

Standard input holds a list of names, ``["mail", "low"]``; standard output is to hold a table of
figures by queue, ``{"mail": {"waiting": 3, "oldest_seconds": 2.5}}``, named as in `SourceLook`, or
``{"mail": {"error": "no such queue"}}``.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

from penstock.metrics.core.sources.look import SourceFault, SourceLook
from penstock.metrics.sources.reported import look_of
from penstock.metrics.sources.shown import shown
from penstock.metrics.sources.source import Kind, SourceAway, SourceSettings
from penstock.runtime.killed_processes import wait_for_end

_MOST_BYTES = 1_000_000
_MOST_REASON = 200
"""Characters of what a program wrote last; its name stands before them."""
_END_SECONDS = 1.0
"""A program that was killed is waited for so long."""
_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "VIRTUAL_ENV", "PYTHONPATH")
SECRET_VARIABLE = "PENSTOCK_SOURCE_SECRET"  # noqa: S105 - a name
"""Holds the content of ``secret_file`` for the program."""


class CommandSource:
    """Runs the program for each look, without a shell and with few variables."""

    def __init__(self, settings: SourceSettings) -> None:
        self._command, self._secret = settings.command, settings.secret
        # A program may report what it was given.
        self._hidden = (settings.secret, *_passwords(settings.command))
        self._process: asyncio.subprocess.Process | None = None

    async def look(self, queues: Sequence[str]) -> Mapping[str, SourceLook | SourceFault]:
        output = await self._run(msgspec.json.encode(list(queues)))
        try:
            answer = msgspec.json.decode(output, type=dict[str, dict[str, Any]])
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            text = f"expected JSON, figures by queue, from {self._command[0]}: {error}"
            raise SourceAway(text) from error
        return {queue: self._look(answer.get(queue)) for queue in queues}

    async def close(self) -> None:
        if self._process is not None:
            process, self._process = self._process, None
            # Its whole session: what it started may hold the pipes open.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            with suppress(TimeoutError):  # one that left the session can hold them open for ever
                async with asyncio.timeout(_END_SECONDS):
                    await wait_for_end(process)

    async def _run(self, written: bytes) -> bytes:
        environment = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        if self._secret:
            environment[SECRET_VARIABLE] = self._secret
        pipe = asyncio.subprocess.PIPE
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command, stdin=pipe, stdout=pipe, stderr=pipe,
                env=environment, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            text = f"cannot run {self._command[0]}: {error.strerror}"
            raise SourceAway(text) from error
        try:
            output, errors = await self._talk(self._process, written)
            status = await self._process.wait()
        finally:
            await self.close()
        if status:
            reason = shown(errors.decode("utf-8", "replace"), *self._hidden, end=True)
            raise SourceAway(f"{self._command[0]} exited with {status}: {reason[-_MOST_REASON:]}")
        return output

    async def _talk(
        self, process: asyncio.subprocess.Process, written: bytes
    ) -> tuple[bytes, bytes]:
        assert process.stdin and process.stdout and process.stderr
        # A program that reads nothing may have ended by now; uvloop raises RuntimeError then.
        with suppress(ConnectionError, RuntimeError):
            process.stdin.write(written)
            process.stdin.close()
        streams = process.stdout, process.stderr
        readings = [asyncio.ensure_future(self._read(stream)) for stream in streams]
        try:
            output, errors = await asyncio.gather(*readings)
        finally:
            for reading in readings:
                reading.cancel()
            await asyncio.wait(readings)
        return output, errors

    async def _read(self, stream: asyncio.StreamReader) -> bytes:
        parts, size = [], 0
        while part := await stream.read(65_536):
            parts.append(part)
            size += len(part)
            if size > _MOST_BYTES:  # and it may write for ever
                raise SourceAway(f"{self._command[0]} wrote more than {_MOST_BYTES} bytes")
        return b"".join(parts)

    def _look(self, figures: Mapping[str, Any] | None) -> SourceLook | SourceFault:
        if figures is None:
            return SourceFault("the program named no figures of it")
        if "error" in figures:
            return SourceFault(shown(figures["error"], *self._hidden))
        return look_of(figures)


def _passwords(command: Sequence[str]) -> Iterator[str]:
    """Of the addresses among its arguments."""
    for argument in command:
        with suppress(ValueError):
            if password := urlsplit(argument.partition("=")[2] or argument).password:
                yield unquote(password)


KIND = Kind(open=CommandSource, runs_command=True)
