"""Which right a key lacks, and who has it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from penstock.bus.patterns import matches
from penstock.cli.deploy.accounts import listened, services, signalled
from penstock.cli.deploy.roles import ROLES, Role
from penstock.events.subjects import Subjects

_REFUSED = re.compile(r'(publish|subscription) to "([^"]+)"')


def missing(refusal: str, prefix: str) -> str:
    """A refusal of the broker as a sentence that says what to do.

    Args:
        refusal: ``permissions violation for publish to "$js.api.stream.list"``, in small letters.
        prefix: that of the installation.
    """
    refused = _REFUSED.search(refusal)
    if refused is None:
        return f"the broker refuses this key: {refusal}"
    verb, subject = refused.groups()
    subjects, written, roles = Subjects(prefix), subject, []
    for name, role in ROLES.items():
        for pattern in _rights(role, subjects, verb):
            if matches(pattern.lower(), subject):
                written = _spelt(subject, pattern)
                roles.append(name)
                break
    what = "publish to" if verb == "publish" else "listen to"
    holders = f"keys of these roles may: {', '.join(roles)}" if roles else "no role may"
    return f"this key may not {what} {written}; {holders} (set nats.nkey_file to such a key)"


def _rights(role: Role, subjects: Subjects, verb: str) -> Iterator[str]:
    if verb == "subscription":
        yield from listened(role, subjects)
        return
    yield from services(role, subjects)
    yield from signalled(role, subjects)


def _spelt(subject: str, pattern: str) -> str:
    """The subject with the letters of the pattern, where that has no wildcard."""
    tokens, spelt = subject.split("."), pattern.split(".")
    spelt += ["*"] * (len(tokens) - len(spelt))
    pairs = zip(tokens, spelt, strict=False)
    return ".".join(token if one in ("*", ">") else one for token, one in pairs)
