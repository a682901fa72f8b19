"""One connection to a Redis server, for kinds whose queues are there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penstock.config.extras import needed
from penstock.metrics.sources.source import SourceAway, SourceSettings

if TYPE_CHECKING:
    from redis.asyncio import Redis

SCHEMES = ("redis", "rediss")
Command = tuple[str | bytes | int, ...]


class RefusedCommand(Exception):
    """The server answered one command with an error, such as that there is no such key."""


class RedisClient:
    """Runs read commands, all of them or none.

    Args:
        settings: of the source; ``secret`` is the password of the user in the address.
    """

    def __init__(self, settings: SourceSettings) -> None:
        with needed("redis", f"sources.{settings.name}", "penstock-metrics"):
            import redis  # noqa: PLC0415 - an extra
            import redis.asyncio  # noqa: PLC0415
            from redis.asyncio.retry import Retry  # noqa: PLC0415
            from redis.backoff import NoBackoff  # noqa: PLC0415
        self._redis = redis
        self._never = Retry(NoBackoff(), 0)  # the looker backs off itself
        self._settings = settings
        self._client: Redis | None = None

    async def read(self, commands: Sequence[Command]) -> list[Any]:
        """Answers at one moment, in the order of the commands, as the protocol has them.

        An answer is a `RefusedCommand` where the server refused that command alone.

        Raises:
            SourceAway: the server is not reached, or refuses all.
        """
        client = self._client or self._open()
        try:
            async with client.pipeline(transaction=True) as pipeline:
                for command in commands:
                    pipeline.execute_command(*command)
                answers: list[Any] = await pipeline.execute(raise_on_error=False)
        except (self._redis.RedisError, OSError) as error:
            raise SourceAway(self._text(error)) from error
        return [self._answer(answer) for answer in answers]

    async def close(self) -> None:
        if self._client is not None:
            client, self._client = self._client, None
            await client.aclose()

    def _open(self) -> Redis:
        settings = self._settings
        self._client = self._redis.asyncio.Redis.from_url(
            settings.url,
            password=settings.secret or None,
            socket_timeout=settings.timeout_seconds,
            socket_connect_timeout=settings.timeout_seconds,
            single_connection_client=True,
            client_name="penstock-metrics",
            protocol=2,
            retry=self._never,
        )
        return self._client

    def _answer(self, answer: Any) -> Any:
        if isinstance(answer, self._redis.ResponseError):
            return RefusedCommand(self._text(answer))
        return answer

    def _text(self, error: Exception) -> str:
        text, secret = str(error)[:300] or type(error).__name__, self._settings.secret
        return text.replace(secret, "***") if secret else text
