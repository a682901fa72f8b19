"""What a stranger with the key of a role could send: bodies that are broken, and bodies that are
well typed and beyond belief, on every subject that the role may write to. Pure."""

from __future__ import annotations

import string
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec.inspect as mi
import msgspec.json
from hypothesis import strategies as st

from penstock.cli.deploy.roles import ROLES
from penstock.events import (
    batch,
    console,
    dead,
    draining,
    graph,
    health,
    job,
    queue,
    record,
    recovering,
    scaling,
    snapshot,
    worker,
)
from penstock.events.envelope import Event

PREFIX = "penstock"
_MODULES = (
    batch,
    console,
    dead,
    draining,
    graph,
    health,
    job,
    queue,
    record,
    recovering,
    scaling,
    snapshot,
    worker,
)
_STREAM_HEADERS: tuple[dict[str, str], ...] = (
    {},
    {"Nats-Msg-Id": "one for all"},
    {"Nats-Rollup": "all"},
    {"Nats-TTL": "1s"},
    {"Nats-Expected-Last-Sequence": "0"},
    {"Nats-Schedule": "@every 1s", "Nats-Schedule-Target": f"{PREFIX}.jobs.work"},
    {"Nats-Schedule": "@at 1970-01-01T00:00:00Z", "Nats-Schedule-Target": f"{PREFIX}.jobs.work"},
    {"Penstock-Job": "x" * 1000, "traceparent": "00-zz-zz-zz"},
)
_TEXTS = ("", "work", "test-host", "x" * 5000, "*.>", "../../etc/passwd", "\x00", "😀", "a b")
_INTEGERS = (0, 1, -1, 2**31, 2**53, 2**63 - 1, -(2**63))
_FLOATS = (0.0, -1.0, 1e-300, 1e300, float(2**63))
_TIMES = ("1970-01-01T00:00:00Z", "2026-11-21T00:00:00Z", "9999-12-31T23:59:59Z")
_MOST = 3


class Forged(NamedTuple):
    subject: str
    body: bytes
    headers: dict[str, str]


def forged(role: str) -> st.SearchStrategy[Forged]:
    """One message that ``role`` may publish."""
    return st.sampled_from(ROLES[role].publishes).flatmap(on)


def on(pattern: str, targets: Sequence[str] = ("work", "test-host")) -> st.SearchStrategy[Forged]:
    """One message on a subject that fits ``pattern``, which is relative to the prefix.

    Args:
        targets: pools and hosts that there are.
    """
    noun = ".".join(pattern.split(".")[:2])
    kinds = _KINDS.get(noun, _KINDS.get(noun.split(".")[0], ()))
    bodies = st.one_of(_broken(), *map(_well_typed_body, kinds))
    return st.builds(
        Forged, _subject(pattern, kinds, targets), bodies, st.sampled_from(_STREAM_HEADERS)
    )


def _subject(
    pattern: str, kinds: tuple[type, ...], targets: Sequence[str]
) -> st.SearchStrategy[str]:
    """Pools and hosts are those that there are; jobs and all else are the stranger's own."""
    own = st.text(string.ascii_lowercase, min_size=6, max_size=6).map("forged-{}".format)
    known = pattern.split(".", maxsplit=1)[0] in {"snapshots", "commands", "beats"}
    token = st.sampled_from(targets) if known else own
    names = st.sampled_from([kind.__name__ for kind in kinds] or ["Unheard"])
    parts: list[st.SearchStrategy[str]] = []
    for index, part in enumerate(pattern.split(".")):
        last_of_event = pattern.startswith("events.") and index == 3
        wild = names if last_of_event else token
        parts.append({"*": wild, ">": token.map("{}.w-1".format)}.get(part, st.just(part)))
    return st.tuples(*parts).map(lambda found: ".".join((PREFIX, *found)))


def _broken() -> st.SearchStrategy[bytes]:
    return st.one_of(
        st.binary(max_size=200),
        st.sampled_from([b"", b"{}", b"[]", b"null", b"[" * 100_000, b'{"type":"X","x":' * 9999]),
        _anything().map(msgspec.json.encode),
        st.just(b"\xff" * 400_000),
    )


def _anything() -> st.SearchStrategy[Any]:
    leaves = st.sampled_from([*_TEXTS, *_INTEGERS, *_FLOATS, None, True])
    return st.recursive(
        leaves, lambda below: st.dictionaries(st.sampled_from(_TEXTS), below, max_size=_MOST)
    )


# --- well typed ----------------------------------------------------------------------------------
def _well_typed_body(kind: type) -> st.SearchStrategy[bytes]:
    return _well_typed(mi.type_info(kind), 0).map(msgspec.json.encode)


def _well_typed(kind: mi.Type, depth: int) -> st.SearchStrategy[Any]:
    plain = _PLAIN.get(type(kind))
    if plain is not None:
        return st.sampled_from(plain)
    match kind:
        case mi.StructType() if depth < _MOST:
            return _struct(kind, depth + 1)
        case mi.UnionType():
            return st.one_of(*(_well_typed(each, depth) for each in kind.types))
        case mi.ListType() | mi.VarTupleType() | mi.SetType() | mi.FrozenSetType():
            return st.lists(_well_typed(kind.item_type, depth), max_size=_MOST)
        case mi.DictType():
            keys = st.sampled_from(_TEXTS)
            return st.dictionaries(keys, _well_typed(kind.value_type, depth), max_size=_MOST)
        case mi.LiteralType():
            return st.sampled_from(kind.values)
        case mi.EnumType():
            return st.sampled_from([each.value for each in kind.cls])
        case _:
            return _anything()


def _struct(kind: mi.StructType, depth: int) -> st.SearchStrategy[Any]:
    fields = {each.encode_name: _well_typed(each.type, depth) for each in kind.fields}
    if kind.array_like:
        return st.tuples(*fields.values()).map(list)
    tag = {kind.tag_field: st.just(kind.tag)} if kind.tag_field else {}
    return st.fixed_dictionaries({**tag, **fields})


_PLAIN: dict[type[mi.Type], tuple[Any, ...]] = {
    mi.IntType: _INTEGERS,
    mi.FloatType: _FLOATS,
    mi.StrType: _TEXTS,
    mi.BoolType: (True, False),
    mi.NoneType: (None,),
    mi.DateTimeType: _TIMES,
    mi.BytesType: ("", "AAAA"),
}


def _structs() -> Iterator[type]:
    for module in _MODULES:
        for found in vars(module).values():
            if isinstance(found, type) and found.__module__ == module.__name__:
                yield found


def _kinds() -> dict[str, tuple[type, ...]]:
    """Types by the beginning of the subjects that they are sent on."""
    found: dict[str, list[type]] = defaultdict(list)
    for kind in _structs():
        if issubclass(kind, Event) and kind.__struct_config__.tag:
            family = "console" if kind.__module__ == console.__name__ else f"events.{kind.noun}"
            found[family].append(kind)
    found["snapshots.pool"] = [snapshot.PoolSnapshot]
    found["snapshots.host"] = [snapshot.HostSnapshot]
    found["snapshots.round"] = [record.RoundDecided, record.CheckpointTaken]
    found["snapshots.settings"] = [record.SettingsAdopted]
    found["commands"] = [scaling.WorkersScaled]
    found["beats"] = [worker.WorkerReport]
    found["notices.drain"] = [draining.DrainAsked]
    found["notices.recover"] = [recovering.RecoverAsked]
    return {noun: tuple(kinds) for noun, kinds in found.items()}


_KINDS = _kinds()
