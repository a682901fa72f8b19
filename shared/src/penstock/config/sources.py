"""Other systems whose queues are measured: tables ``[sources.NAME]``."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import parse_qsl, urlsplit

from msgspec import Meta

from penstock.config.secret_names import is_secret
from penstock.config.section import Name, Section

_LOOK_SECONDS = 1.0
_COARSE = {"sqs": 10.0}
"""Kinds whose looks are paid for."""


class SourceTable(Section, frozen=True, kw_only=True):
    """Another system that holds queues, which is only read: nothing is taken or changed there.

    Or streaming queries of Spark, which report themselves.

    Attributes:
        kind: how the system is read: one of the kinds of sources.md, or one that an installed
            package adds.
        url: address of the system, without a password.
        secret_file: file with the password in one line, mode 0600: of the user in ``url``, or the
            value of the header ``Authorization`` where the kind speaks HTTP.
        command: of kind ``command``: a program and its arguments, run without a shell.
        options: what else the kind takes, by name.
        interval_seconds: time between two looks; where it is not set 1, of kind ``sqs`` 10.
        timeout_seconds: a look that takes longer is a failed one; one at more than a thousand
            queues may take longer in proportion.
    """

    kind: Name
    url: Annotated[str, Meta(max_length=2_000)] = ""
    secret_file: Annotated[str, Meta(max_length=4_000)] = ""
    command: Annotated[tuple[str, ...], Meta(max_length=100)] = ()
    options: dict[str, Any] = {}
    interval_seconds: Annotated[float, Meta(ge=0.2, le=3600)] | None = None
    timeout_seconds: Annotated[float, Meta(ge=0.1, le=60)] = 5.0

    def __post_init__(self) -> None:
        """Raises ValueError: a password in the address, which would be shown wherever it is."""
        super().__post_init__()
        try:
            address = urlsplit(self.url)
            password, names = address.password, [name for name, _ in parse_qsl(address.query)]
        except ValueError:
            raise ValueError("url: found text that is no address, expected scheme://host") from None
        if password is not None or any(is_secret(name, ()) for name in names):
            raise ValueError("url holds a password: write it to a file and name it in secret_file")

    @property
    def look_seconds(self) -> float:
        """Time between two looks."""
        return self.interval_seconds or _COARSE.get(self.kind, _LOOK_SECONDS)
