"""API tokens of the console: ``pst_``, 43 characters of chance, and a checksum of 8.

The checksum is no secret. It lets a scanner of source code recognise a token for certain, and the
console refuse a mistyped one without a look at those that it knows.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import zlib

MARK = "pst_"
_SECRET_BYTES = 32
_FORM = re.compile(r"pst_[A-Za-z0-9_-]{43}[0-9a-f]{8}")
_CHECKSUM_LENGTH = 8


def new_token() -> str:
    """A new token, of 256 bits of chance."""
    text = MARK + secrets.token_urlsafe(_SECRET_BYTES)
    return text + _checksum(text)


def is_token(text: str) -> bool:
    """Whether it has a token's form and checksum."""
    if not _FORM.fullmatch(text):
        return False
    return _checksum(text[:-_CHECKSUM_LENGTH]) == text[-_CHECKSUM_LENGTH:]


def holds_token(text: str) -> bool:
    """Whether a token stands somewhere in it: valid, expired, or of another installation."""
    return MARK in text and any(is_token(match[0]) for match in _FORM.finditer(text))


def new_secret() -> str:
    """The secret of a session's cookie or of a setup link."""
    return secrets.token_urlsafe(_SECRET_BYTES)


def digest(secret: str) -> str:
    """What is stored of a token, a cookie or a link: its SHA-256, in hexadecimal.

    A fast hash is enough: the secrets are of 256 bits of chance, which cannot be searched.
    """
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _checksum(text: str) -> str:
    return f"{zlib.crc32(text.encode()):0{_CHECKSUM_LENGTH}x}"
