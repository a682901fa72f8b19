"""Streams that are there already, changed in place to what the settings say."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from penstock.bus import streams
from penstock.config import Settings
from penstock.events.subjects import Subjects

log = logging.getLogger("penstock.bus")


async def adapt(
    api: Callable[..., Awaitable[dict[str, Any]]],
    settings: Settings,
    subjects: Subjects,
    extra_bytes: int = 0,
) -> None:
    """Has the streams that living jobs rest on discard nothing by themselves.

    Args:
        api: asks the JetStream API.
        extra_bytes: what the event log may hold beyond its usual bound.

    Raises:
        BusError
    """
    for declared in streams.streams(settings, subjects):
        name = declared["name"]
        if name not in (subjects.events_stream, subjects.checkpoints_stream):
            continue
        if "max_bytes" in declared:
            declared["max_bytes"] += extra_bytes
        answer = await api(f"STREAM.INFO.{name}")
        complete = streams.complete(declared, settings.streams.replicas)
        wanted = streams.adapted(answer["config"], complete, answer["state"]["bytes"])
        if wanted != answer["config"]:
            await api(f"STREAM.UPDATE.{name}", wanted)
            log.info("stream %s now keeps what the settings say", name)
