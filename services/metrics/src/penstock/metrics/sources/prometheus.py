"""Kind ``prometheus``: each figure is the result of a query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Annotated, Any
from urllib.parse import urlencode, urlsplit

import msgspec
from msgspec import Meta

from penstock.metrics.core.sources.look import SourceFault, SourceLook
from penstock.metrics.sources.reported import look_of
from penstock.metrics.sources.requests import Requests
from penstock.metrics.sources.source import Kind, SourceAway, SourceSettings

QUEUE = "{queue}"
Query = Annotated[str, Meta(max_length=4_000)]


class PrometheusOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A query for each figure, such as ``sum(rq_jobs{queue="{queue}"})``.

    Each gives one number. One without a result is a fault: a series that is gone is no zero, unless
    the query ends with ``or vector(0)``.
    """

    waiting: Query
    claimed: Query = ""
    delayed: Query = ""
    oldest_seconds: Query = ""
    arrived: Query = ""
    ended: Query = ""


class _Sample(msgspec.Struct):
    value: tuple[float, str]


class _Vector(msgspec.Struct, tag_field="resultType", tag="vector"):
    result: tuple[_Sample, ...]


class _Scalar(msgspec.Struct, tag_field="resultType", tag="scalar"):
    result: tuple[float, str]


class _Answer(msgspec.Struct):
    data: _Vector | _Scalar


class PrometheusSource:
    """One request for each figure of a queue, over one connection."""

    def __init__(self, settings: SourceSettings) -> None:
        self._path = urlsplit(settings.url).path.rstrip("/") + "/api/v1/query"
        self._requests = Requests(settings)
        self._queries: dict[str, str] = {
            name: query for name, query in msgspec.structs.asdict(settings.options).items() if query
        }

    async def look(self, queues: Sequence[str]) -> Mapping[str, SourceLook | SourceFault]:
        return {queue: await self._look(queue) for queue in queues}

    async def close(self) -> None:
        await self._requests.close()

    async def _look(self, queue: str) -> SourceLook | SourceFault:
        figures: dict[str, Any] = {}
        for name, query in self._queries.items():
            value = await self._value(query.replace(QUEUE, _quoted(queue)))
            if isinstance(value, str):
                return SourceFault(f"the query of {name} {value}")
            # Sums over scrapes are not always whole.
            figures[name] = value if name == "oldest_seconds" else round(value)
        look = look_of(figures)
        return look if isinstance(look, SourceFault) else msgspec.structs.replace(look, exact=False)

    async def _value(self, query: str) -> float | str:
        body = await self._requests.get(f"{self._path}?{urlencode({'query': query})}")
        try:
            data = msgspec.json.decode(body, type=_Answer).data
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise SourceAway(f"expected an answer of Prometheus: {error}") from error
        if isinstance(data, _Vector) and len(data.result) != 1:
            return f"gave {len(data.result)} series, expected one: use sum(…) or another aggregate"
        text = data.result[0].value[1] if isinstance(data, _Vector) else data.result[1]
        try:
            value = float(text)
        except ValueError:
            return "gave no number"
        return value if isfinite(value) else f"gave {text}"


def _quoted(queue: str) -> str:
    """A queue's name within the quotes of a PromQL string."""
    return queue.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


KIND = Kind(
    open=PrometheusSource,
    schemes=("http", "https"),
    options=PrometheusOptions,
    counts_arrivals=lambda options: bool(options.arrived or options.ended),
    tells_queues_apart=lambda _, options: QUEUE in options.waiting,
)
