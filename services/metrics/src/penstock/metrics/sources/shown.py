"""What a server or a program reports, made fit to be shown: in logs, events, on pages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import quote

from penstock.config.masking import MASK, masked
from penstock.telemetry.lines import one_line

_MOST_SHOWN = 300
_MOST_SEARCHED = 10_000
"""Characters in which secrets are looked for by their names."""
_LEAST_SECRET = 4
"""A part of a secret with fewer characters is text like any other."""


def shown(error: object, *secrets: str, end: bool = False) -> str:
    """The text of an error in one line, without secrets, and cut only then.

    Cut before, it could end with a part of a secret, which is not recognised.

    Args:
        secrets: of the source; parts, such as the token in ``Bearer TOKEN``, are hidden too.
        end: of a long text, the end is shown in place of the beginning.
    """
    text = str(error).strip() or f"no reason given ({type(error).__name__})"
    for spelling in _spellings(secrets):
        text = text.replace(spelling, MASK)
    hidden: str = masked(text[-_MOST_SEARCHED:] if end else text[:_MOST_SEARCHED])
    line = one_line(hidden)
    return line[-_MOST_SHOWN:] if end else line[:_MOST_SHOWN]


def _spellings(secrets: Sequence[str]) -> list[str]:
    """The longest first: one may be a part of another."""
    parts = {part for secret in secrets for part in re.split(r"[:\s]", secret)}
    plain = {part for part in parts if len(part) >= _LEAST_SECRET} | {*secrets} - {""}
    return sorted(plain | {quote(part, safe="") for part in plain}, key=len, reverse=True)
