"""Names of secrets, recognised by the words of a name, not by the name as a whole. Pure.

A name is split into words at case changes and at everything that is no letter or digit:
``dbPassword``, ``DB_PASSWORD``, ``db-password`` and ``db.password`` have the same words. The name
holds a secret when

1. one of its words is a secret's (``password``, ``token``, ``secret``, ...), or two neighbours are
   (``api key``, ``private key``, ...), or it ends with ``pass`` or ``auth``; and
2. its last word does not name a fact about the secret: ``token_count``, ``passwords_reset``,
   ``secret_name`` and ``key_file`` are shown, ``password_old`` and ``secret_id`` are not.

Where the rule is in doubt it hides: a hidden count costs a look, a shown password a rotation.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection
from functools import lru_cache
from itertools import pairwise
from typing import Any

_SECRETS = (
    "password", "passwd", "passphrase", "passcode", "pwd", "secret", "token", "credential", "cred",
    "authorization", "cookie", "jwt", "apikey", "accesskey", "secretkey", "privatekey",
)  # fmt: skip
_ANYWHERE = ("password", "passwd", "passphrase")
"""Hidden also in the middle of a word: ``dbpasswords``, ``mypasswordold``."""
_PAIRS = frozenset(
    (before, "key")
    for before in (
        "access", "account", "api", "auth", "client", "encryption", "license", "master",
        "private", "secret", "session", "shared", "signing", "ssh", "storage",
    )
) | {("pass", "word"), ("pass", "phrase"), ("pass", "code"), ("nkey", "seed")}  # fmt: skip
_LAST = frozenset({"pass", "auth"})
_FACTS = frozenset(
    {
        "count", "counts", "total", "totals", "number", "numbers", "num", "size", "sizes",
        "length", "len", "limit", "limits", "max", "min", "budget", "usage", "used", "left",
        "remaining", "rate", "ratio", "cost", "price", "age", "ttl", "lifetime", "seconds",
        "minutes", "hours", "days", "ms", "at", "date", "time", "expires", "expiry", "expired",
        "expiration", "reset", "resets", "change", "changed", "changes", "rotated", "rotation",
        "updated", "created", "deleted", "policy", "policies", "type", "types", "kind", "name",
        "names", "file", "files", "path", "paths", "dir", "folder", "algorithm", "version",
        "required", "enabled", "disabled", "valid", "invalid", "missing", "url", "uri",
        "endpoint", "provider", "field", "fields", "parameter", "column", "bucket",
    }
)  # fmt: skip
_NO_NAME = re.compile(r"[\W_]+")
_CASE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_LONGEST_KEPT = 100


def is_secret(name: str, also: Collection[str] = ()) -> bool:
    """Whether what stands under this name is hidden.

    Args:
        name: of a field, header, option or setting, as it was written.
        also: further names, as `spelled` gives them.
    """
    words = words_of(name)
    return ("".join(words) in also) or _secret(words)


def hides(name: str, value: Any, also: Collection[str] = ()) -> bool:
    """Whether this value is hidden under this name.

    What cannot be a secret is shown: nothing, an empty text, yes or no, a number under a plural
    (``max_tokens = 512``). Under a name of ``also`` everything is hidden.
    """
    words = words_of(name)
    if "".join(words) in also:
        return True
    if value is None or value == "" or isinstance(value, bool) or not _secret(words):
        return False
    return not (isinstance(value, (int, float)) and words[-1].endswith("s"))


def spelled(names: Collection[str]) -> frozenset[str]:
    """Names without case and separators, to be compared with: ``cardNumber`` is ``card_number``."""
    return frozenset("".join(words_of(name)) for name in names)


def words_of(name: str) -> tuple[str, ...]:
    """The words of a name in lower case, without digits at their end and invisible characters."""
    return _words_kept(name) if len(name) <= _LONGEST_KEPT else _words(name)


def _words(name: str) -> tuple[str, ...]:
    text = unicodedata.normalize("NFKC", name)
    if not text.isascii():
        text = "".join(char for char in text if unicodedata.category(char) != "Cf")
    pieces = _NO_NAME.split(_CASE.sub(" ", text))
    words = tuple(word for piece in pieces if (word := piece.casefold().rstrip("0123456789")))
    return words or (text.casefold().replace("_", ""),)


_words_kept = lru_cache(maxsize=4_096)(_words)


def _secret(words: tuple[str, ...]) -> bool:
    if words[-1] in _FACTS:
        return False
    if words[-1] in _LAST or any(pair in _PAIRS for pair in _neighbours(words)):
        return True
    return any(_names_secret(word) for word in words)


def _neighbours(words: tuple[str, ...]) -> Collection[tuple[str, str]]:
    return [(before, after.removesuffix("s")) for before, after in pairwise(words)]


def _names_secret(word: str) -> bool:
    return word.removesuffix("s").endswith(_SECRETS) or any(part in word for part in _ANYWHERE)
