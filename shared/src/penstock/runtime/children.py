"""Child processes that never outlive this one, watched and signalled by pidfd (never by name)."""

from __future__ import annotations

import asyncio
import ctypes
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


class ChildFailed(RuntimeError):
    """A child that could not be started, or ended when it should run: what, how, its last words."""


class Child:
    """A running process started by :func:`start`.

    Attributes:
        name: for messages.
        pid: its process id.
        log: where its output goes, if to a file.
        process: the standard library's view of it, for its pipes.
    """

    def __init__(self, name: str, process: subprocess.Popen[bytes], log: Path | None) -> None:
        self.name, self.process, self.log = name, process, log
        self.pid = process.pid
        self._pidfd = os.pidfd_open(process.pid)  # not reaped before this process does so: no race

    @property
    def exit_code(self) -> int | None:
        """As of ``waitpid``, negative for a signal; None while it runs."""
        return self.process.poll()

    def signal(self, number: int) -> None:
        """Sends a signal; nothing happens when it has ended."""
        if self.exit_code is None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    def wait(self, seconds: float) -> int | None:
        """Blocks until it ended; its exit code, or None when it still runs after ``seconds``."""
        if self.exit_code is None:
            poll = select.poll()
            poll.register(self._pidfd, select.POLLIN)
            poll.poll(max(0.0, seconds) * 1000)
        return self.exit_code

    async def ended(self) -> int:
        """Waits until it ended; its exit code."""
        if self.exit_code is None:
            loop, over = asyncio.get_running_loop(), asyncio.Event()
            watched = os.dup(
                self._pidfd
            )  # several may wait: a loop takes one reader per descriptor
            loop.add_reader(watched, over.set)
            try:
                await over.wait()
            finally:
                loop.remove_reader(watched)
                os.close(watched)
        return self.process.wait()

    def end(self, grace_seconds: float = 5.0) -> int:
        """Asks it to end (TERM), kills it after ``grace_seconds``; blocks. Its exit code."""
        self._ask()
        if self.wait(grace_seconds) is None:
            self.signal(signal.SIGKILL)
        return self._collect()

    async def stop(self, grace_seconds: float = 5.0) -> int:
        """:meth:`end` for coroutines."""
        self._ask()
        try:
            async with asyncio.timeout(grace_seconds):
                await self.ended()
        except TimeoutError:
            self.signal(signal.SIGKILL)
            await self.ended()
        return self._collect()

    def last_words(self, lines: int = 15) -> str:
        """The end of its log, for an error message."""
        if self.log is None or not self.log.is_file():
            return ""
        return "\n".join(self.log.read_text("utf-8", "replace").splitlines()[-lines:])

    def failed(self, what: str) -> ChildFailed:
        """An error that says ``what`` happened to this child, with its last words."""
        code, words = self.exit_code, self.last_words()
        state = "still running" if code is None else f"exit code {code}"
        return ChildFailed(
            f"{self.name} {what} ({state})" + (f"; its log ends:\n{words}" if words else "")
        )

    def _ask(self) -> None:
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)  # a stopped process would not handle it

    def _collect(self) -> int:
        code = self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe:
                pipe.close()
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1
        return code


def start(
    argv: Sequence[str],
    *,
    name: str = "",
    log: Path | None = None,
    env: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: int | IO[Any] = subprocess.DEVNULL,
    output: int | IO[Any] | None = None,
    pass_fds: Sequence[int] = (),
    parent_death_signal: int = signal.SIGKILL,
    held_back: Collection[int] = (),
) -> Child:
    """Starts a command that is signalled by the kernel when this process dies, however it dies.

    It gets a process group of its own, so that Ctrl-C reaches only the parent,
    which ends it in order.

    Args:
        argv: the command; nothing is passed through a shell.
        log: a file its output is appended to.
        output: a pipe or file in its place; without either it writes where this process does.
        env: variables laid over those of ``environment``.
        environment: all its variables but for ``env``; None for this process's own.
        parent_death_signal: what the child gets then.
        held_back: signals that wait until the child unblocks them.

    Raises:
        ChildFailed: the command cannot be run, or this is not the main thread (the kernel ties
            the signal to the thread that forks: the child would die with it).
    """
    name = name or Path(argv[0]).name
    if threading.current_thread() is not threading.main_thread():
        raise ChildFailed(f"{name}: children are started from the main thread, which outlives them")
    sink = log.open("ab") if log else None
    try:
        process = subprocess.Popen(
            list(argv),
            env={**(os.environ if environment is None else environment), **(env or {})},
            cwd=cwd,
            stdin=stdin,
            stdout=sink or output,
            stderr=subprocess.STDOUT if sink or output is not None else None,
            pass_fds=tuple(pass_fds),
            process_group=0,
            # Safe beside threads: a few system calls, nothing that takes a lock.
            preexec_fn=_begin(os.getpid(), parent_death_signal, held_back),  # noqa: PLW1509
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise ChildFailed(f"{name}: cannot run {argv[0]}: {error}") from error
    finally:
        if sink:
            sink.close()
    return Child(name, process, log)


def wait_until(child: Child, ready: Callable[[], bool], seconds: float, what: str) -> None:
    """Blocks until ``ready()``, looking every 10 ms.

    Raises:
        ChildFailed: the child ended before, or ``seconds`` passed.
    """
    deadline = time.monotonic() + seconds
    while not ready():
        if child.wait(0.01) is not None:
            raise child.failed(f"ended before it was {what}")
        if time.monotonic() > deadline:
            raise child.failed(f"is not {what} after {seconds:g} s")


def end_with(parent: int) -> None:
    """Called in a child of `multiprocessing`: the kernel kills it when its parent is gone.

    Args:
        parent: its process id.
    """
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a forked child has its parent's handler
    _end_when_gone(parent, signal.SIGKILL)


def _begin(parent: int, number: int, held_back: Collection[int]) -> Callable[[], None]:
    """What the child does between fork and exec."""

    def bind() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, held_back)
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell ignores it for what runs behind it
        _end_when_gone(parent, number)

    return bind


def _end_when_gone(parent: int, number: int) -> None:
    """Has the kernel send this process a signal when its parent is gone."""
    _libc.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:  # it died before the line above
        os._exit(1)
