"""The broker's accounts: one that keeps the streams, and one for each key.

NATS checks which subjects a client publishes to, but not which subject it names for the reply: the
broker sends the answer, and the broker may write anywhere in the client's account. An account of
its own for each key closes that. A key's account holds no stream; what its role may ask and publish
is imported from the account with the streams, one subject at a time. A reply subject is then one of
the key's own account, where nothing else listens, and an answer that goes to an imported subject is
a request that the key may make anyway.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from penstock.bus.nkeys import inbox
from penstock.cli.deploy.roles import CARRIED, ROLES, STREAMS, Role
from penstock.events.subjects import Subjects

_API = "$JS.API"
_ACCOUNT_INFO = f"{_API}.INFO"
"""Imported by all, though few may ask: to an account that does not import it the broker gives an
import of the whole API by itself, which then answers that the account has no JetStream."""
_MANY_ANSWERS = ("DIRECT.GET.", "CONSUMER.MSG.NEXT.")
"""Requests that are answered by several messages."""
_ANSWERED_WITHIN = "30s"
"""How long the broker remembers where the answers to a request go. No pull waits for so long; a
longer time costs memory, since a finished pull is remembered until then as well."""


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """A key of an installation.

    Attributes:
        name: unique in the installation; also the name of its folder.
        role: one of ``ROLES``.
        public: the public half, ``U…``.
        prefix: that of the installation; several share a broker under different ones.
    """

    name: str
    role: str
    public: str
    prefix: str = "penstock"


def accounts(keys: Sequence[Key]) -> dict[str, dict[str, Any]]:
    """What nats-server's configuration takes as ``accounts``."""
    made: dict[str, dict[str, Any]] = {}
    for prefix in dict.fromkeys(key.prefix for key in keys):
        subjects = Subjects(prefix)
        made[core(prefix)] = {"jetstream": "enabled", "exports": _exports(subjects)}
    for key in keys:
        made[f"{core(key.prefix)}/{key.name}"] = _account(key)
    return made


def core(prefix: str) -> str:
    """Name of the account that keeps an installation's streams."""
    return prefix


def configuration(keys: Sequence[Key]) -> str:
    """The accounts as lines of a configuration file, to be included in ``accounts { }``."""
    lines = [f"{json.dumps(n)}: {json.dumps(a, indent=2)}\n" for n, a in accounts(keys).items()]
    return "".join(lines)


def _account(key: Key) -> dict[str, Any]:
    role, subjects = ROLES[key.role], Subjects(key.prefix)
    source = core(key.prefix)
    asked, heard = list(services(role, subjects)), list(listened(role, subjects))
    denied = [] if role.carries else [f"{key.prefix}.{subject}" for subject in CARRIED]
    allowed = {
        "publish": {"allow": asked, "deny": denied},
        "subscribe": {"allow": [f"{inbox(key.public)}.>", *heard]},
    }
    imported = dict.fromkeys([_ACCOUNT_INFO, *asked])
    return {
        "users": [{"nkey": key.public, "permissions": allowed}],
        "imports": [
            *({"service": {"account": source, "subject": subject}} for subject in imported),
            *({"stream": {"account": source, "subject": subject}} for subject in heard),
        ],
    }


def _exports(subjects: Subjects) -> list[dict[str, Any]]:
    """All that any role needs. Only the accounts of this configuration could import it."""
    asked = dict.fromkeys(s for role in ROLES.values() for s in services(role, subjects))
    heard = dict.fromkeys(s for role in ROLES.values() for s in listened(role, subjects))
    return [*map(_service, asked), *({"stream": subject} for subject in heard)]


def _service(subject: str) -> dict[str, str]:
    kind = "stream" if subject.startswith(tuple(f"{_API}.{v}" for v in _MANY_ANSWERS)) else "single"
    return {"service": subject, "response_type": kind, "threshold": _ANSWERED_WITHIN}


def services(role: Role, subjects: Subjects) -> Iterator[str]:
    """Subjects that a role may publish to: messages, and requests to the JetStream API."""
    yield from (f"{subjects.prefix}.{subject}" for subject in role.publishes)
    yield from (f"{_API}.{verb}" for verb in verbs(role, subjects))
    if role.claims:
        yield f"$JS.ACK.{subjects.jobs_stream}.>"


def listened(role: Role, subjects: Subjects) -> Iterator[str]:
    """Subjects that a role may subscribe to, beside its inbox."""
    yield from (f"{subjects.prefix}.{subject}" for subject in role.listens)


def verbs(role: Role, subjects: Subjects) -> Iterator[str]:
    """Parts of the JetStream API, without ``$JS.API.``."""
    jobs = subjects.jobs_stream
    for name in STREAMS:
        yield f"STREAM.INFO.{subjects.stream(name)}"
    for stream in map(subjects.stream, role.reads):
        yield f"STREAM.MSG.GET.{stream}"
        yield f"DIRECT.GET.{stream}"
        if stream != jobs:  # a follower of it would be a second taker of jobs
            yield f"CONSUMER.CREATE.{stream}.*"
            yield f"CONSUMER.MSG.NEXT.{stream}.*"
    for name in role.purges:
        yield f"STREAM.PURGE.{subjects.stream(name)}"
    if role.claims:
        yield f"CONSUMER.MSG.NEXT.{jobs}.*"
    if role.makes_queues:
        yield f"CONSUMER.DURABLE.CREATE.{jobs}.*"
    if role.counts_queues:
        yield f"CONSUMER.LIST.{jobs}"
    if role.pauses:
        yield from (f"CONSUMER.{verb}.{jobs}.*" for verb in ("PAUSE", "INFO"))
    if role.makes_streams:
        yield from (f"STREAM.CREATE.{subjects.stream(name)}" for name in STREAMS)
        yield from (f"STREAM.UPDATE.{subjects.stream(name)}" for name in STREAMS)
    if role.surveys:
        yield from ("INFO", "STREAM.LIST")
