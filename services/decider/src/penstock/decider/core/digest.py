"""Fingerprints by which a recomputation proves itself equal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any

import msgspec

from penstock.decider.core.conclude import Decision

_encode = msgspec.json.Encoder().encode
_encode_in_order = msgspec.json.Encoder(order="deterministic").encode


def digest(decisions: Iterable[Decision]) -> str:
    """The digest of a round's decisions, bit for bit as JSON."""
    return blake2b(_encode(decisions), digest_size=8).hexdigest()


def fingerprint(settings: Mapping[str, Any]) -> str:
    """The fingerprint of settings; the order of their names does not matter."""
    return blake2b(_encode_in_order(settings), digest_size=8).hexdigest()
