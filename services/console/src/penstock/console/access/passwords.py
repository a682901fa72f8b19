"""Passwords: Argon2id, in one thread, so that logins never take the memory of many."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError
from litestar.exceptions import TooManyRequestsException

T = TypeVar("T")

LEAST_LENGTH, MOST_LENGTH = 12, 256
_MOST_WAITING = 16


class BadPassword(ValueError):
    """A new password that is not allowed: says what is."""


class Passwords:
    """Hashes and compares; 19 MiB and about 50 ms each (OWASP's recommendation for Argon2id)."""

    def __init__(self) -> None:
        self._hasher = PasswordHasher(time_cost=3, memory_cost=19_456, parallelism=1)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="console-passwords")
        self._nobodys = self._hasher.hash("the password of no account")
        self._waiting = 0

    async def hash(self, password: str) -> str:
        """The hash of a new password.

        Raises:
            BadPassword: it is too short or too long.
        """
        if not LEAST_LENGTH <= len(password) <= MOST_LENGTH:
            raise BadPassword(f"a password has {LEAST_LENGTH} to {MOST_LENGTH} characters")
        return await self._run(self._hasher.hash, password)

    async def is_right(self, stored: str, password: str) -> bool:
        """Whether it is the password of the hash. Without a hash it takes as long, and is not."""
        if len(password) > MOST_LENGTH:
            password = ""
        matches = await self._run(self._verify, stored or self._nobodys, password)
        return bool(stored) and matches

    def close(self) -> None:
        """Ends the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _verify(self, stored: str, password: str) -> bool:
        try:
            return self._hasher.verify(stored, password)
        except (VerificationError, InvalidHashError):
            return False

    async def _run(self, work: Callable[..., T], *args: str) -> T:
        if self._waiting >= _MOST_WAITING:
            raise TooManyRequestsException("many people log in at once; try again in a moment")
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work, *args)
        finally:
            self._waiting -= 1
