"""Delivering a notice: a job is dispatched, a request is posted, or a command is run."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable
from contextlib import suppress
from http.client import HTTPException, HTTPMessage
from typing import IO, Any, Never

import msgspec

from penstock.bus.protocol import BusError
from penstock.config.hooks import HookTable
from penstock.events.notice import JobNotice
from penstock.jobs.client import Client
from penstock.jobs.errors import AlreadyDispatched
from penstock.orchestrator.core import hook as core
from penstock.runtime.killed_processes import wait_for_end

Deliver = Callable[[JobNotice], Awaitable[None]]
"""Raises NotDelivered where another try may help; Refused or JobsError, where none does."""
_MOST_OUTPUT = 2_000
_PASSING = frozenset({408, 425, 429})
"""Statuses below 500 that another try may change: timeout, too early, too many requests."""


class NotDelivered(Exception):
    """It did not work this time: says why."""


class Refused(Exception):
    """The endpoint refuses this notice, and would refuse it again: says why."""


def delivery_of(hook: HookTable, client: Client) -> Deliver:
    """How a hook's notices are delivered."""
    if hook.job:
        return lambda notice: _dispatch(hook, client, notice)
    if hook.url:
        return lambda notice: _post(hook, notice)
    return lambda notice: _run(hook, notice)


async def _dispatch(hook: HookTable, client: Client, notice: JobNotice) -> None:
    arguments = {"notice": msgspec.to_builtins(notice)}
    try:
        await client.dispatch_named(
            hook.job, arguments, queue=hook.queue, job_id=core.job_id(notice)
        )
    except AlreadyDispatched:  # before a crash, or by another orchestrator
        pass
    except BusError as error:
        raise NotDelivered(f"job {hook.job} cannot be dispatched: {error}") from error


async def _post(hook: HookTable, notice: JobNotice) -> None:
    headers = {"Content-Type": "application/json", "User-Agent": "penstock"}
    if hook.authorization:
        headers["Authorization"] = hook.authorization
    request = urllib.request.Request(  # noqa: S310 - the settings allow http and https alone
        hook.url, data=msgspec.json.encode(notice), headers=headers, method="POST"
    )
    await asyncio.to_thread(_send, request, hook.timeout_seconds)


def _send(request: urllib.request.Request, timeout_seconds: float) -> None:
    try:
        with _opener.open(request, timeout=timeout_seconds):
            pass
    except urllib.error.HTTPError as error:
        error.close()
        is_final = 400 <= error.code < 500 and error.code not in _PASSING
        reason = f"{request.host} answered with status {error.code}"
        raise (Refused if is_final else NotDelivered)(reason) from error
    except (OSError, HTTPException, ValueError) as error:
        raise NotDelivered(f"{request.host} cannot be reached: {error}") from error


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A notice, and the password beside it, goes to the address of the settings alone."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> Never:
        raise urllib.error.HTTPError(req.full_url, code, "redirects elsewhere", headers, fp)


_opener: Any = urllib.request.build_opener(_NoRedirect)


async def _run(hook: HookTable, notice: JobNotice) -> None:
    try:
        process = await asyncio.create_subprocess_exec(
            *hook.command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        raise NotDelivered(f"cannot run {hook.command[0]}: {error}") from error
    try:
        async with asyncio.timeout(hook.timeout_seconds):
            _, output = await process.communicate(msgspec.json.encode(notice))
    except TimeoutError as error:
        raise NotDelivered(
            f"{hook.command[0]} still ran after {hook.timeout_seconds:g} s"
        ) from error
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await wait_for_end(process)
    if process.returncode:
        text = output[-_MOST_OUTPUT:].decode("utf-8", "replace").strip()
        raise NotDelivered(f"{hook.command[0]} exited with {process.returncode}: {text}")
