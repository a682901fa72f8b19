"""What is run when jobs fail or end: a job, an HTTP request or a command."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlsplit

from msgspec import Meta

from penstock.config.section import Positive, Section

Occasion = Literal["failed", "dead", "completed", "cancelled"]


class HookTable(Section, frozen=True, kw_only=True):
    """Runs a job, an HTTP request or a command for each event of jobs that matches.

    The orchestrator delivers at least once, in the order of the event log but for what has to be
    tried again, and goes on after a restart where it was. A new hook begins with the events after
    its first start. Events of jobs that a hook dispatched run no hook.

    Attributes:
        on: ``failed`` (each failed attempt, ``will_retry`` says whether another follows), ``dead``,
            ``completed``, ``cancelled``.
        functions: patterns of registered names, such as ``shop.*``; empty for any.
        queues: patterns of queues; empty for any.
        job: registered name of the function to dispatch with the argument ``notice``
            (a `penstock.jobs.JobNotice`); needs ``queue``.
        queue: the queue of that job.
        url: an address that the notice is posted to as JSON; any status from 200 to 299 is taken as
            delivered, and one from 400 to 499 as refused for good, but for 408, 425 and 429.
        authorization: the header of that name, such as ``Bearer …``.
        command: a program and its arguments, run on the orchestrator's host without a shell; it
            reads the notice as JSON from standard input, and exits with 0.
        timeout_seconds: of one request or run of the command.
        give_up_seconds: an event that could not be delivered for so long is dropped, with an error
            in the log; behind three tries the later ones of this hook go on beside it.
    """

    on: tuple[Occasion, ...] = ("dead",)
    functions: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    job: str = ""
    queue: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{0,64}$")] = ""
    url: str = ""
    authorization: str = ""
    command: tuple[str, ...] = ()
    timeout_seconds: Positive = 10.0
    give_up_seconds: Positive = 3600.0

    def __post_init__(self) -> None:
        """Raises ValueError: says what was found and what is expected."""
        super().__post_init__()
        targets = [name for name in ("job", "url", "command") if getattr(self, name)]
        if len(targets) != 1:
            named = " and ".join(targets) or "none of them"
            raise ValueError(f"a hook has one of job, url and command; found {named}")
        if self.job and not self.queue:
            raise ValueError("a hook's job needs the queue that it waits on: add queue")
        if not self.on:
            raise ValueError("found on = [], expected one or more of failed, dead, completed, …")
        if self.url:
            address = urlsplit(self.url)
            if address.scheme not in {"http", "https"} or not address.hostname:
                raise ValueError("a hook's url begins with http:// or https:// and names a host")
