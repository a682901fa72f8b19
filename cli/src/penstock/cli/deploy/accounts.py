"""The broker's accounts: one that keeps the streams, and one for each key.

NATS checks which subjects a client publishes to, but not which subject it names for the reply: the
broker sends the answer, and the broker may write anywhere in the client's account. An account of
its own for each key closes that. A key's account holds no stream; what its role may ask and store
is imported from the account with the streams, one subject at a time. A reply subject is then one
of the key's own account, where no stream listens, and an answer that goes to an imported subject
is a request that the key may make anyway. Messages that keys receive of each other are imported
by their accounts from one another, under a prefix since circles are not allowed. The account with
the streams passes nothing on by itself, so that no consumer can push copies anywhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from penstock.bus.nkeys import IMPORT_PREFIX, inbox
from penstock.cli.deploy.roles import ROLES, STREAMS, Role, bound
from penstock.events.subjects import Subjects

_API = "$JS.API"
_ACCOUNT_INFO = f"{_API}.INFO"
"""Imported by all, though few may request it: an account without this import gets one of the whole
API from the broker, which then answers that the account has no JetStream."""
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
        host: the host that the key is bound to; empty for any.
        queues: the queues that it is bound to; none for any.
    """

    name: str
    role: str
    public: str
    prefix: str = "penstock"
    host: str = ""
    queues: tuple[str, ...] = ()

    @property
    def bound_role(self) -> Role:
        """The key's role, bound to its host and queues."""
        return bound(ROLES[self.role], self.host, self.queues)


def accounts(
    keys: Sequence[Key], limits: Mapping[str, int] | None = None
) -> dict[str, dict[str, Any]]:
    """The ``accounts`` of nats-server's configuration, by name.

    Args:
        keys: of all installations on this broker.
        limits: bytes that the streams of an installation may take, by its prefix.
    """
    made: dict[str, dict[str, Any]] = {}
    for prefix in dict.fromkeys(key.prefix for key in keys):
        requests = dict.fromkeys(
            s for role in ROLES.values() for s in services(role, Subjects(prefix))
        )
        most = (limits or {}).get(prefix)
        stores = {"max_store": most} if most else "enabled"
        made[core(prefix)] = {"jetstream": stores, "exports": [*map(_service, requests)]}
    for key in keys:
        made[name(key)] = _account(key, [k for k in keys if k.prefix == key.prefix and k != key])
    return made


def name(key: Key) -> str:
    """Name of a key's account."""
    return f"{core(key.prefix)}/{key.name}"


def core(prefix: str) -> str:
    """Name of the account that keeps an installation's streams."""
    return prefix


def configuration(keys: Sequence[Key], limits: Mapping[str, int] | None = None) -> str:
    """The accounts as lines of a configuration file, to be included in ``accounts { }``."""
    made = accounts(keys, limits)
    lines = [f"{json.dumps(n)}: {json.dumps(a, indent=2)}\n" for n, a in made.items()]
    return "".join(lines)


def _account(key: Key, others: Sequence[Key]) -> dict[str, Any]:
    role, subjects = key.bound_role, Subjects(key.prefix)
    source = core(key.prefix)
    requests, received = list(services(role, subjects)), list(listened(role, subjects))
    denied = [f"{key.prefix}.{subject}" for subject in role.denied]
    allowed = {
        "publish": {"allow": [*requests, *signalled(role, subjects)], "deny": denied},
        "subscribe": {
            "allow": [
                f"{inbox(key.public)}.>",
                *received,
                *(".".join((IMPORT_PREFIX, subject)) for subject in received),
            ]
        },
    }
    return {
        "users": [{"nkey": key.public, "permissions": allowed}],
        "imports": [
            *(
                {"service": {"account": source, "subject": subject}}
                for subject in dict.fromkeys([_ACCOUNT_INFO, *requests])
            ),
            *(
                {"stream": {"account": name(other), "subject": subject}, "prefix": IMPORT_PREFIX}
                for other in others
                for subject in _imported(other, received)
            ),
        ],
        "exports": [{"stream": subject} for subject in _published(role, subjects)],
        **({"limits": {"max_connections": role.connections}} if role.connections else {}),
    }


def _imported(other: Key, received: Sequence[str]) -> Iterator[str]:
    """The subjects among those received that another key publishes.

    It comes from the account of the other key, not by way of the streams' account: what came to an
    account as a request for a service is not passed on as a stream.
    """
    published = _published(other.bound_role, Subjects(other.prefix))
    both = (overlap(one, two) for one in published for two in received)
    yield from dict.fromkeys(subject for subject in both if subject)


def _published(role: Role, subjects: Subjects) -> Iterator[str]:
    """Messages of a role, stored or not."""
    yield from (f"{subjects.prefix}.{subject}" for subject in role.publishes)


def overlap(one: str, two: str) -> str:
    """The subjects that match both patterns, as a pattern; empty for none."""
    ones, twos = one.split("."), two.split(".")
    common: list[str] = []
    for position in range(max(len(ones), len(twos))):
        left = ones[position] if position < len(ones) else ""
        right = twos[position] if position < len(twos) else ""
        if left == ">" or right == ">":
            rest = (twos if left == ">" else ones)[position:]
            return ".".join([*common, *rest]) if rest else ""
        if (left != right and "*" not in (left, right)) or not (left and right):
            return ""
        common.append(right if left == "*" else left)
    return ".".join(common)


def _service(subject: str) -> dict[str, str]:
    kind = "stream" if subject.startswith(tuple(f"{_API}.{v}" for v in _MANY_ANSWERS)) else "single"
    return {"service": subject, "response_type": kind, "threshold": _ANSWERED_WITHIN}


def services(role: Role, subjects: Subjects) -> Iterator[str]:
    """Requests that a role may send to the streams' account: stored messages, JetStream's API."""
    yield from (f"{subjects.prefix}.{one}" for one in role.publishes if not _is_signal(one))
    yield from (f"{_API}.{verb}" for verb in verbs(role, subjects))
    if role.answers:
        yield from (
            f"$JS.ACK.{subjects.jobs_stream}.{place}.>" for place in _places(role, subjects)
        )


def signalled(role: Role, subjects: Subjects) -> Iterator[str]:
    """Subjects that a role may publish to and that no stream stores."""
    yield from (f"{subjects.prefix}.{one}" for one in role.publishes if _is_signal(one))


def _is_signal(subject: str) -> bool:
    return subject.startswith(("beats.", "notices."))


def _places(role: Role, subjects: Subjects) -> list[str]:
    """Consumers that a role takes jobs from."""
    return ["*" if queue == "*" else subjects.consumer(queue) for queue in role.queues]


def listened(role: Role, subjects: Subjects) -> Iterator[str]:
    """Subjects that a role may subscribe to, beside its inbox."""
    yield from (f"{subjects.prefix}.{subject}" for subject in role.listens)


def verbs(role: Role, subjects: Subjects) -> Iterator[str]:
    """Parts of the JetStream API, without ``$JS.API.``."""
    jobs = subjects.jobs_stream
    for name in STREAMS if role.makes_streams else role.reads:
        yield f"STREAM.INFO.{subjects.stream(name)}"  # names all subjects of the stream
    for stream in map(subjects.stream, role.reads):
        yield f"STREAM.MSG.GET.{stream}"
        yield f"DIRECT.GET.{stream}"
    for stream in map(subjects.stream, role.follows):
        yield f"CONSUMER.CREATE.{stream}.*"
        yield f"CONSUMER.MSG.NEXT.{stream}.*"
    for name in role.purges:
        yield f"STREAM.PURGE.{subjects.stream(name)}"
    for name in role.deletes:
        yield f"STREAM.MSG.DELETE.{subjects.stream(name)}"
    if role.claims:
        yield from (f"CONSUMER.MSG.NEXT.{jobs}.{place}" for place in _places(role, subjects))
    if role.makes_queues:
        yield f"CONSUMER.DURABLE.CREATE.{jobs}.*"
        yield f"CONSUMER.DELETE.{jobs}.*"
    if role.counts_queues:
        yield f"CONSUMER.LIST.{jobs}"
    if role.pauses:
        yield from (f"CONSUMER.{verb}.{jobs}.*" for verb in ("PAUSE", "INFO"))
    if role.makes_streams:
        for verb in ("CREATE", "UPDATE"):
            yield from (f"STREAM.{verb}.{subjects.stream(name)}" for name in STREAMS)
    if role.surveys:
        yield from ("INFO", "STREAM.LIST")
