"""Runs `penstock … --json` as a child process: few at once, each with limits, none left behind.

A child gets a fixed list of arguments and no shell, the broker's address and a key as its only
settings, and a process group of its own, which is killed when its answer is not wanted any more:
the caller was cancelled, the console ends, or a limit is reached. The kernel kills it when the
console is killed.
"""

from __future__ import annotations

import asyncio
import math
import os
import re
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from penstock.config import Settings
from penstock.config.settings import Nats
from penstock.runtime.interpreter import module_command
from penstock.runtime.killed_processes import wait_for_end

_LAUNCHER = "penstock.console.computing.limited"
COMMAND = ("-m", "penstock.cli.main")
"""Of Python: `penstock`, wherever it is installed."""
_KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR")
_FILES = ("nkey_file", "credentials_file", "ca_file")
_NOT_FOR_READING = frozenset({"worker_nkey_file", "monitor_url"})
_PART_BYTES = 65_536
_LAST_WORDS_BYTES = 8_192
_PREFIX = "penstock: "
_SHARE = re.compile(rb"^[a-z]+ ([01]\.[0-9]{2})$", re.MULTILINE)
_WRONG_USE = 2
_FILE_BYTES = 64 * 1024 * 1024
_MEMORY = "more memory than the console gives to a computation"

Progress = Callable[[float], None]


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What one computation may take.

    Attributes:
        seconds: of wall-clock time; and of CPU time.
        memory_bytes: of addresses.
        output_bytes: of its answer.
    """

    seconds: float
    memory_bytes: int = 1024**3
    output_bytes: int = 4 * 1024 * 1024


class ComputationFailed(Exception):
    """A computation has no answer; the text is a sentence for people."""


class BadComputation(ComputationFailed):
    """What was to be computed makes no sense to the decider's code, which says why."""


class TooManyComputations(Exception):
    """As many run as may run at once."""


class Commands:
    """Runs computations.

    Args:
        settings: of this process.
        folder: for children to run in; empty, and readable by this user alone.
        at_once: children that may run at the same time.
        command: that arguments are appended to, for Python; tests put another program there.
    """

    def __init__(
        self,
        settings: Settings,
        folder: Path,
        at_once: int,
        command: Sequence[str] = COMMAND,
    ) -> None:
        self._environment = environment(settings)
        self._folder, self._at_once, self._command = folder, at_once, tuple(command)
        self.pids: set[int] = set()
        """Of the children that run."""
        self._running = 0

    @property
    def is_full(self) -> bool:
        """Whether as many run as may run at once."""
        return self._running >= self._at_once

    def check_free(self) -> None:
        """Raises TooManyComputations: as many run as may run at once."""
        if self.is_full:
            raise TooManyComputations(f"{self._at_once} computations run; try again in a moment")

    async def run(
        self, arguments: Sequence[str], limits: Limits, progress: Progress | None = None
    ) -> bytes:
        """The output of one command. The child is dead when this returns, raises or is cancelled.

        Args:
            arguments: of `penstock`.
            limits: of this computation.
            progress: called with the share that is done, as often as the child writes it.

        Raises:
            TooManyComputations: none was started.
            BadComputation: the command refused its arguments.
            ComputationFailed: it failed, or reached a limit.
        """
        self.check_free()
        self._running += 1
        try:
            return await self._run(arguments, limits, progress or _ignore)
        finally:
            self._running -= 1

    async def _run(self, arguments: Sequence[str], limits: Limits, progress: Progress) -> bytes:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        numbers = (os.getpid(), limits.memory_bytes, math.ceil(limits.seconds), _FILE_BYTES)
        try:
            child = await asyncio.create_subprocess_exec(
                *module_command(_LAUNCHER, *map(str, numbers), *self._command, *arguments),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                limit=_PART_BYTES,
                env=self._environment,
                cwd=self._folder,
                start_new_session=True,
            )
        except OSError as error:
            raise ComputationFailed(f"no process could be started: {error.strerror}") from error
        self.pids.add(child.pid)
        assert child.stdout is not None
        assert child.stderr is not None
        errors = asyncio.create_task(_last_words(child.stderr, progress))
        try:
            async with asyncio.timeout(limits.seconds):
                output = await _bounded(child.stdout, limits.output_bytes)
                words = await errors
                await child.wait()
        except TimeoutError:
            raise ComputationFailed(
                f"it took more than {limits.seconds:g} s, which is all that the console gives it"
            ) from None
        finally:
            errors.cancel()
            await asyncio.shield(_kill(child, errors))
            self.pids.discard(child.pid)
        if child.returncode:
            raise _failure(child.returncode, words)
        return output


def environment(settings: Settings) -> dict[str, str]:
    """The variables of a child: the broker, the key to read it with, and nothing else of ours.

    Folders and files are named in full, as a child runs in another folder.
    """
    kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    # The same strategies and policies as the decider's, where they are found by this path.
    if path := os.environ.get("PYTHONPATH"):
        kept["PYTHONPATH"] = os.pathsep.join(_absolute(part) for part in path.split(os.pathsep))
    broker = _reading(settings)
    for name in Nats.__struct_fields__:
        value = getattr(broker, name)
        if value != getattr(Nats(), name) and name not in _NOT_FOR_READING:
            kept[f"PENSTOCK_NATS__{name.upper()}"] = (
                _absolute(value) if name in _FILES else str(value)
            )
    threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "1")
    return {**kept, **threads, "PENSTOCK_PREFIX": settings.prefix, "PYTHONDONTWRITEBYTECODE": "1"}


def _reading(settings: Settings) -> Nats:
    """The broker with a key that may only read, where the settings name one."""
    if not settings.console.reader_nkey_file:
        return settings.nats
    return msgspec.structs.replace(
        settings.nats,
        nkey_file=settings.console.reader_nkey_file,
        credentials_file="",
        user="",
        password="",
    )


def _absolute(path: str) -> str:
    return str(Path(path).absolute())


def _ignore(_: float) -> None:
    """Shows nothing."""


async def _bounded(stream: asyncio.StreamReader, most: int) -> bytes:
    parts, size = list[bytes](), 0
    while part := await stream.read(_PART_BYTES):
        size += len(part)
        if size > most:
            raise ComputationFailed(f"its answer is larger than {most:,} bytes")
        parts.append(part)
    return b"".join(parts)


async def _last_words(stream: asyncio.StreamReader, progress: Progress) -> str:
    """The end of what a child writes beside its answer; lines that end in a share are progress."""
    kept = b""
    while part := await stream.read(_PART_BYTES):
        kept = (kept + part)[-_LAST_WORDS_BYTES:]
        if shares := _SHARE.findall(kept):
            progress(min(1.0, float(shares[-1])))
    return kept.decode("utf-8", "replace")


async def _kill(child: asyncio.subprocess.Process, errors: asyncio.Task[str]) -> None:
    """The whole group, also where the child has ended and left others in it; waits for its end."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    await asyncio.wait([errors])
    await wait_for_end(child)


def _failure(code: int, words: str) -> ComputationFailed:
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    own = [line.removeprefix(_PREFIX) for line in lines if line.startswith(_PREFIX)]
    last = own[-1] if own else (lines[-1] if lines else "it ended without an answer or a reason")
    if code == _WRONG_USE:
        return BadComputation(last)
    if "MemoryError" in words:
        return ComputationFailed(f"it needed {_MEMORY}")
    if code == -signal.SIGKILL:
        return ComputationFailed(f"it was killed; it may have needed {_MEMORY}")
    if code < 0:
        return ComputationFailed(f"it was ended by signal {-code}")
    return ComputationFailed(last)
