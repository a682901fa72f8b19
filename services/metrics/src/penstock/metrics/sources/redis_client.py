"""One connection to a Redis server, for kinds whose queues are there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penstock.config.extras import needed
from penstock.config.source_patterns import WILDCARD
from penstock.metrics.sources.bounded_reader import BoundedReader
from penstock.metrics.sources.source import MOST_NAMES, SourceAway, SourceSettings

if TYPE_CHECKING:
    from redis.asyncio import Redis

SCHEMES = ("redis", "rediss")
Command = tuple[str | bytes | int, ...]
_MOST_COMMANDS = 500
"""Of one transaction: the server does nothing else meanwhile."""
_MOST_BYTES = 16_000_000
"""Of the answers to one transaction: redis-py takes any size, in memory up to four times."""
_SCANNED_AT_ONCE = 1_000
_MOST_SCANS = 2_000
"""Two million keys; a larger database is not searched for queues twice a minute."""


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
        self._reader: BoundedReader | None = None

    async def read(self, commands: Sequence[Command], together: int = 0) -> list[Any]:
        """Answers in the order of the commands, as the protocol has them.

        An answer is a `RefusedCommand` where the server refused that command alone.

        Args:
            together: commands of one queue, answered at one moment; 0: all commands are.

        Raises:
            SourceAway: the server is not reached, or refuses all.
        """
        step = max(_MOST_COMMANDS // together * together, together) if together else len(commands)
        answers: list[Any] = []
        for start in range(0, len(commands), max(step, 1)):
            answers += await self._read(commands[start : start + step])
        return answers

    async def scan(self, prefix: str, pattern: str, kind: str) -> list[str]:
        """Keys by a pattern of queues, without the prefix; few more than ``MOST_NAMES``.

        Args:
            prefix: that all of them have.
            pattern: of what is behind it.
            kind: type of the keys, as the server names it.

        Raises:
            SourceAway: also where the database holds too many keys to be searched.
        """
        match = glob(prefix) + glob(pattern, WILDCARD)
        tail = ("MATCH", match, "COUNT", _SCANNED_AT_ONCE, "TYPE", kind)
        return [key[len(prefix) :] for key in await self._collect(("SCAN",), tail)]

    async def members(self, key: str, prefix: str, pattern: str) -> list[str]:
        """Members of a set by a pattern of queues, as `scan` has it; none where there is no set.

        Raises:
            SourceAway: as with `scan`.
        """
        match = glob(prefix) + glob(pattern, WILDCARD)
        tail = ("MATCH", match, "COUNT", _SCANNED_AT_ONCE)
        return [name[len(prefix) :] for name in await self._collect(("SSCAN", key), tail)]

    async def _collect(self, head: Command, tail: Command) -> list[str]:
        cursor = 0
        texts: dict[bytes, None] = {}  # the server may name one twice
        for _ in range(_MOST_SCANS):
            next_cursor, page = await self.answer((*head, cursor, *tail))
            texts |= dict.fromkeys(page)
            cursor = int(next_cursor)
            if not cursor or len(texts) > MOST_NAMES:
                return [text.decode("utf-8", "replace") for text in texts]
        raise SourceAway(
            f"more than {_MOST_SCANS * _SCANNED_AT_ONCE} names would be searched for queues: name "
            "these without a pattern, or use a database for them alone"
        )

    async def answer(self, command: Command) -> Any:
        """The answer to one command.

        Raises:
            SourceAway: also where the server refuses it.
        """
        [answer] = await self.read([command])
        if isinstance(answer, RefusedCommand):
            raise SourceAway(f"{command[0]!s} {command[1]!s}: {answer}")
        return answer

    async def _read(self, commands: Sequence[Command]) -> list[Any]:
        client = self._client or self._open()
        if self._reader is not None:
            self._reader.begin()
        try:
            async with client.pipeline(transaction=True) as pipeline:
                for command in commands:
                    pipeline.execute_command(*command)
                answers: list[Any] = await pipeline.execute(raise_on_error=False)
        except (self._redis.RedisError, OSError) as error:
            raise SourceAway(self._settings.shown(error)) from error
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
            redis_connect_func=self._on_connect,
        )
        return self._client

    async def _on_connect(self, connection: Any) -> None:
        """As redis-py does, once answers are bounded; its parser takes the reader of then."""
        self._reader = connection._reader = BoundedReader(connection._reader, _MOST_BYTES)
        await connection.on_connect()

    def _answer(self, answer: Any) -> Any:
        if isinstance(answer, self._redis.ResponseError):
            return RefusedCommand(self._settings.shown(answer))
        return answer


def glob(text: str, but: str = "") -> str:
    """Text as a pattern of Redis: each character stands for itself, except those of ``but``."""
    return "".join(f"\\{char}" if char in "\\*?[]^-" and char not in but else char for char in text)
