"""Arguments, results and checkpoints that only those who hold the key can read.

AES-256-GCM (NIST SP 800-38D) with a random nonce. What was sealed is bound to its purpose and its
job: put into another job's message, it does not open. A sealed value is a MessagePack extension, so
it lies where the value itself would, and a reader that knows nothing of it says so.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from penstock.config import ConfigError
from penstock.jobs import members
from penstock.jobs.errors import MissingKey, Undecryptable
from penstock.jobs.payload import Payload

Purpose = Literal["arguments", "result", "checkpoint"]

_EXTENSION = 80
_NONCE_BYTES = 12
_KEY_BYTES = 32
_MAX_FILE_BYTES = 100_000
_KEY_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


class Sealed(msgspec.Struct, frozen=True, array_like=True):
    """Attributes: key: id of the key. about: the job it belongs to, authenticated."""

    key: str
    purpose: str
    about: str
    nonce: bytes
    box: bytes


class KeyRing:
    """Keys by id; the first one seals, all of them open.

    Args:
        keys: 32 bytes each.
    """

    def __init__(self, keys: Mapping[str, bytes] | None = None) -> None:
        self._keys = dict(keys or {})

    def __bool__(self) -> bool:
        return bool(self._keys)

    def seal(self, plain: bytes | msgspec.Raw, purpose: Purpose, about: str) -> bytes:
        """``plain`` for nobody but the holders of the first key.

        Raises:
            MissingKey: the ring is empty.
        """
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - few need it

        if not self._keys:
            raise MissingKey("nothing can be encrypted: encryption.key_file names no keys")
        key_id, key = next(iter(self._keys.items()))
        nonce = os.urandom(_NONCE_BYTES)
        box = AESGCM(key).encrypt(nonce, bytes(plain), _bound(purpose, about))
        sealed = msgspec.msgpack.encode(Sealed(key_id, purpose, about, nonce, box))
        return msgspec.msgpack.encode(msgspec.msgpack.Ext(_EXTENSION, sealed))

    def open(self, found: bytes | msgspec.Raw, purpose: Purpose, about: str) -> bytes:
        """What was sealed for this purpose and job.

        Raises:
            MissingKey: sealed with a key that is not in the ring.
            Undecryptable: sealed for something else, or changed since.
        """
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

        sealed = unpack(found)
        if (sealed.purpose, sealed.about) != (purpose, about):
            raise Undecryptable(
                f"expected the {purpose} of job {about}, found the encrypted "
                f"{sealed.purpose[:40]} of job {sealed.about[:80]}"
            )
        if (key := self._keys.get(sealed.key)) is None:
            known = ", ".join(self._keys) or "none"
            raise MissingKey(
                f"the {purpose} of job {about} need key {sealed.key[:80]!r}, known keys: {known}; "
                "add it to the file that encryption.key_file names"
            )
        try:
            return AESGCM(key).decrypt(sealed.nonce, sealed.box, _bound(purpose, about))
        except (InvalidTag, ValueError) as error:
            raise Undecryptable(
                f"the {purpose} of job {about} do not open with key {sealed.key!r}: "
                "they were changed, or that key is another one here"
            ) from error


def is_sealed(found: bytes | msgspec.Raw) -> bool:
    """Whether an encoded value is a sealed one: looks at its first bytes only."""
    head = memoryview(found)
    if not head or (at := _TYPE_AT.get(head[0])) is None:  # as good as always
        return False
    return len(head) > at and head[at] == _EXTENSION


_TYPE_AT = {0xC7: 2, 0xC8: 3, 0xC9: 5}
"""Where the type stands in extensions of 8, 16 and 32 bits of length; a sealed value is never one
of the five short ones of fixed length."""


def unpack(found: bytes | msgspec.Raw) -> Sealed:
    """The envelope of a sealed value. Raises Undecryptable."""
    try:
        extension = msgspec.msgpack.decode(found, type=msgspec.msgpack.Ext)
        if extension.code != _EXTENSION:
            raise ValueError(f"extension {extension.code}, expected {_EXTENSION}")
        return msgspec.msgpack.decode(extension.data, type=Sealed)
    except (ValueError, msgspec.MsgspecError) as error:  # text that is none is a ValueError
        raise Undecryptable(f"not an encrypted value: {error}") from error


def name_for(call: Payload, template: bool = False) -> str:
    """What a call's arguments are bound to: its job's id.

    Args:
        template: jobs of other ids will be made of it: bound to its function and its own making.
    """
    if template:
        return f"template-{call.function}-{call.id}"
    return members.first_callback(call.id)


def arguments(call: Payload, ring: KeyRing) -> bytes | msgspec.Raw:
    """A call's arguments, opened, with what was handed on.

    Raises:
        MissingKey, Undecryptable, msgspec.MsgspecError
    """
    if not call.handed and not is_sealed(call.arguments):
        return call.arguments
    own = call.arguments
    if is_sealed(own):
        made_from = unpack(own).about
        of_template = made_from.startswith(f"template-{call.function}-")
        own = msgspec.Raw(ring.open(own, "arguments", made_from if of_template else name_for(call)))
    handed = {
        name: msgspec.Raw(_handed(value, call.id, ring))
        for name, value in (call.handed or {}).items()
    }
    return msgspec.structs.replace(call, arguments=own, handed=handed).all_arguments()


def _handed(value: msgspec.Raw, job_id: str, ring: KeyRing) -> bytes | msgspec.Raw:
    """A result that was handed on: of a step of the same graph, if it is sealed."""
    if not is_sealed(value):
        return value
    about = unpack(value).about
    ours, theirs = members.step(job_id), members.step(about)
    if ours is None or theirs is None or ours[0] != theirs[0]:
        raise Undecryptable(f"job {job_id} was handed the encrypted result of job {about[:80]}")
    return ring.open(value, "result", about)


def _bound(purpose: str, about: str) -> bytes:
    return f"penstock:{purpose}:{about}".encode()


def load(key_file: str) -> KeyRing:
    """The ring that a file holds: a line ``id base64-of-32-bytes`` each, the first one seals.

    Raises:
        ConfigError: says which line, what was found and what was expected; never the key.
    """
    if not key_file:
        return KeyRing()
    path = Path(key_file)
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        text = path.read_bytes()[:_MAX_FILE_BYTES].decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"encryption.key_file {key_file!r} cannot be read: {error}") from error
    if mode & 0o077:
        raise ConfigError(
            f"encryption.key_file {key_file!r} has mode {mode:04o}, so others can read it; "
            f"expected 0600: chmod 600 {key_file}"
        )
    keys: dict[str, bytes] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            key_id, key = _line(f"{key_file}, line {number}", line)
            if key_id in keys:
                raise ConfigError(f"{key_file}, line {number}: key {key_id!r} is there twice")
            keys[key_id] = key
    return KeyRing(keys)


def _line(place: str, line: str) -> tuple[str, bytes]:
    expected = "expected 'id key', the key being 32 bytes in base64"
    parts = line.split()
    if len(parts) != 2 or not _KEY_ID.fullmatch(parts[0]):
        raise ConfigError(f"{place}: {expected}")
    try:
        key = base64.b64decode(parts[1], validate=True)
    except binascii.Error:
        raise ConfigError(f"{place}: {expected}") from None
    if len(key) != _KEY_BYTES:
        raise ConfigError(f"{place}: {expected}, found {len(key)} bytes")
    return parts[0], key
