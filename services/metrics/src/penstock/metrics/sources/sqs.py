"""Kind ``sqs``: queues of Amazon SQS. All figures are approximate, and each look is paid for."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from penstock.config.extras import needed
from penstock.config.load import ConfigError
from penstock.metrics.core.sources.look import SourceFault, SourceLook
from penstock.metrics.core.sources.zeros import Counts, believed
from penstock.metrics.sources.shown import shown
from penstock.metrics.sources.source import Kind, SourceAway, SourceSettings

_REFUSALS = ("AccessDenied", "InvalidAddress", "NonExistentQueue", "QueueDoesNotExist")
"""In the code of an error of one queue; any other is one of all of them."""


class SqsOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the queues are.

    Attributes:
        region: such as ``eu-central-1``; where it is not set, that of the environment.
    """

    region: Annotated[str, Meta(max_length=100)] = ""


class _Attributes(msgspec.Struct, frozen=True, kw_only=True):
    """Of GetQueueAttributes: numbers as texts."""

    waiting: int = msgspec.field(name="ApproximateNumberOfMessages")
    claimed: int = msgspec.field(name="ApproximateNumberOfMessagesNotVisible")
    delayed: int = msgspec.field(name="ApproximateNumberOfMessagesDelayed")
    created: str = msgspec.field(name="CreatedTimestamp")


_NAMES = list(_Attributes.__struct_encode_fields__)


class SqsSource:
    """One request for each queue and look, over one connection."""

    def __init__(self, settings: SourceSettings) -> None:
        with needed("sqs", f"sources.{settings.name}: kind 'sqs'", "penstock-metrics"):
            from aiobotocore.config import AioConfig  # noqa: PLC0415 - an extra
            from aiobotocore.session import get_session  # noqa: PLC0415
            from botocore import exceptions  # noqa: PLC0415

            from penstock.metrics.sources.sqs_session import BoundedSession  # noqa: PLC0415
        self._errors = exceptions
        self._secrets = _keys(settings)
        self._hidden: tuple[str, ...] = (settings.secret,)
        self._session = get_session()
        self._is_loaded = False
        self._opening: dict[str, Any] = {
            "endpoint_url": settings.url or None,
            # Without TLS there is no certificate: the system's authorities need not be read.
            "verify": False if settings.url.startswith("http://") else None,
            "region_name": settings.options.region or None,
            "config": AioConfig(
                connect_timeout=settings.timeout_seconds,
                read_timeout=settings.timeout_seconds,
                max_pool_connections=1,
                retries={"total_max_attempts": 1},  # the looker backs off itself
                user_agent_extra="penstock-metrics",
                http_session_cls=BoundedSession,
            ),
            **self._secrets,
        }
        self._context: Any = None
        self._client: Any = None
        self._urls: dict[str, str] = {}
        self._believed: dict[str, tuple[str, Counts]] = {}

    async def look(self, queues: Sequence[str]) -> Mapping[str, SourceLook | SourceFault]:
        try:
            client = self._client or await self._open()
            return {queue: await self._look(client, queue) for queue in queues}
        except (self._errors.BotoCoreError, self._errors.ClientError, OSError) as error:
            raise SourceAway(shown(error, *self._hidden)) from error
        except Exception as error:  # whatever parsing raises of what is no answer
            raise SourceAway(f"expected an answer of SQS: {type(error).__name__}") from error

    async def close(self) -> None:
        self._client, context = None, self._context
        if context is not None:
            self._context = None
            await context.__aexit__(None, None, None)

    async def _open(self) -> Any:
        if not self._is_loaded:
            await asyncio.to_thread(_preload, self._session.get_component("data_loader"))
            self._is_loaded = True
        context = self._session.create_client("sqs", **self._opening)
        self._client, self._context = await context.__aenter__(), context
        if credentials := await self._session.get_credentials():  # the environment's, too
            keys = await credentials.get_frozen_credentials()
            self._hidden = tuple(filter(None, keys[:3]))
        return self._client

    async def _look(self, client: Any, queue: str) -> SourceLook | SourceFault:
        try:
            url = self._urls.get(queue) or await self._url(client, queue)
            answer = await client.get_queue_attributes(QueueUrl=url, AttributeNames=_NAMES)
        except self._errors.ClientError as error:
            self._urls.pop(queue, None)
            if not any(refusal in error.response["Error"]["Code"] for refusal in _REFUSALS):
                raise
            self._believed.pop(queue, None)
            return SourceFault(f"queue {queue!r}: {shown(error, *self._hidden)}")
        try:
            counted = msgspec.convert(answer.get("Attributes"), _Attributes, strict=False)
        except msgspec.ValidationError as error:
            return SourceFault(f"queue {queue!r}: {error}")
        return self._worked_in(queue, counted)

    async def _url(self, client: Any, queue: str) -> str:
        is_url = queue.startswith(("https://", "http://"))
        self._urls[queue] = (
            queue if is_url else (await client.get_queue_url(QueueName=queue))["QueueUrl"]
        )
        return self._urls[queue]

    def _worked_in(self, queue: str, counted: _Attributes) -> SourceLook:
        created, before = self._believed.get(queue, ("", None))
        if created != counted.created:  # another queue of the same name
            before = None
        counts = believed(before, counted.waiting, counted.claimed)
        self._believed[queue] = counted.created, counts
        return SourceLook(
            waiting=counts.waiting,
            claimed=counts.claimed,
            delayed=counted.delayed,
            epoch=counted.created,
            exact=False,
        )


def _preload(loader: Any) -> None:
    """Reads what describes the service, which takes a third of a second; the loader keeps it."""
    loader.load_service_model("sqs", "service-2")
    loader.load_service_model("sqs", "endpoint-rule-set-1")
    for name in ("endpoints", "partitions"):
        loader.load_data(name)


def _keys(settings: SourceSettings) -> dict[str, str]:
    """Credentials of ``secret_file``; none where the environment has them."""
    if not settings.secret:
        return {}
    key_id, _, rest = settings.secret.partition(":")
    key, _, token = rest.partition(":")
    if not (key_id and key):
        raise ConfigError(
            f"sources.{settings.name}.secret_file: expected KEY_ID:SECRET_KEY in one line, or "
            "KEY_ID:SECRET_KEY:SESSION_TOKEN"
        )
    keys = {"aws_access_key_id": key_id, "aws_secret_access_key": key}
    return keys | ({"aws_session_token": token} if token else {})


KIND = Kind(
    open=SqsSource,
    schemes=("https", "http"),
    is_url_optional=True,
    options=SqsOptions,
    counts_arrivals=lambda _: False,
    least_interval_seconds=10.0,
    least_sla_seconds=120.0,
)
