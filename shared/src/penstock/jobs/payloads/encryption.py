"""Arguments, results and checkpoints that can be read only with the key.

AES-256-GCM-SIV (RFC 8452) with a random nonce: a nonce that comes twice shows no more than that two
values are equal. What was sealed is bound to what it was sealed for (:class:`About`): put into
another job's message, or handed to another function, it does not open. A sealed value is a
MessagePack extension in the place of the value itself, so that a reader without support for it
fails. See docs/decisions/0023.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

import msgspec

from penstock.config import ConfigError
from penstock.config.extras import needed
from penstock.jobs import derived_ids
from penstock.jobs.errors import MissingKey, Undecryptable
from penstock.jobs.payloads import payload
from penstock.jobs.payloads.payload import Payload

Purpose = Literal[
    "arguments",
    "template",
    "result",
    "checkpoint",
    "inline",
    "signal",
    "status",
    "channel",
    "answer",
]

_EXTENSION = 80
_VERSION: Final = 2
_NONCE_BYTES = 12
_KEY_BYTES = 32
_MAX_FILE_BYTES = 100_000
_KEY_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


class About(msgspec.Struct, frozen=True, kw_only=True):
    """What a value is sealed for; it opens for the same only.

    Attributes:
        purpose: ``template``: arguments that a schedule's jobs are made of.
        job: its id; of a template, what the ids of its jobs begin with.
        call: the rest of the encoded call, for arguments: tries, tags, expiry and so on.
        takes: parameters that are handed over later, with the job whose result each is given.
    """

    purpose: Purpose
    job: str
    function: str
    queue: str
    call: bytes = b""
    takes: dict[str, str] = {}


class Sealed(msgspec.Struct, frozen=True, array_like=True):
    """The envelope; all of it is authenticated. Attributes: key: id of the key."""

    version: Literal[2]
    key: str
    purpose: str
    job: str
    function: str
    queue: str
    takes: dict[str, str]
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

    def seal(self, plain: bytes | msgspec.Raw, about: About) -> bytes:
        """``plain`` for the holders of the first key only.

        Raises:
            MissingKey: the ring is empty.
        """
        if not self._keys:
            raise MissingKey("nothing can be encrypted: encryption.key_file names no keys")
        from cryptography.hazmat.primitives.ciphers.aead import AESGCMSIV  # noqa: PLC0415 - few need it

        key_id, key = next(iter(self._keys.items()))
        nonce = os.urandom(_NONCE_BYTES)
        box = AESGCMSIV(key).encrypt(nonce, bytes(plain), _bound(key_id, about))
        sealed = Sealed(
            _VERSION,
            key_id,
            about.purpose,
            about.job,
            about.function,
            about.queue,
            about.takes,
            nonce,
            box,
        )
        return _encode(msgspec.msgpack.Ext(_EXTENSION, _encode(sealed)))

    def open(self, value: bytes | msgspec.Raw, about: About) -> bytes:
        """The plain text of a value that was sealed for this purpose and job.

        Raises:
            MissingKey: sealed with a key that is not in the ring.
            Undecryptable: sealed for something else, or changed since.
        """
        sealed = unpack(value)
        for name in ("purpose", "job", "function", "queue", "takes"):
            if getattr(sealed, name) != getattr(about, name):
                raise Undecryptable(
                    f"expected the encrypted {about.purpose} of job {about.job} with {name} "
                    f"{getattr(about, name)!r}, found {name} {str(getattr(sealed, name))[:80]!r}"
                )
        if (key := self._keys.get(sealed.key)) is None:
            key_ids = ", ".join(self._keys) or "none"
            raise MissingKey(
                f"the {about.purpose} of job {about.job} need key {sealed.key[:80]!r}, "
                f"known keys: {key_ids}; add it to the file that encryption.key_file names",
                sealed.key[:80],
            )
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - few need it
        from cryptography.hazmat.primitives.ciphers.aead import AESGCMSIV  # noqa: PLC0415

        try:
            return AESGCMSIV(key).decrypt(sealed.nonce, sealed.box, _bound(sealed.key, about))
        except (InvalidTag, ValueError) as error:
            raise Undecryptable(
                f"the {about.purpose} of job {about.job} do not open with key {sealed.key!r}: "
                "they, or what they are bound to, were changed, or that key is another one here"
            ) from error


_encode = msgspec.msgpack.Encoder().encode


def _bound(key_id: str, about: About) -> bytes:
    """The associated data: a MessagePack array, so that no two differ in their boundaries only."""
    return _encode(("penstock.sealed", _VERSION, key_id, *msgspec.structs.astuple(about)))


def is_sealed(value: bytes | msgspec.Raw) -> bool:
    """Whether an encoded value is a sealed one: looks at its first bytes only."""
    head = memoryview(value)
    if not head or (at := _TYPE_AT.get(head[0])) is None:  # as good as always
        return False
    return len(head) > at and head[at] == _EXTENSION


_TYPE_AT = {0xC7: 2, 0xC8: 3, 0xC9: 5}
"""Where the type stands in extensions of 8, 16 and 32 bits of length; a sealed value is never one
of the five short ones of fixed length."""


def unpack(value: bytes | msgspec.Raw) -> Sealed:
    """The envelope of a sealed value. Raises Undecryptable."""
    try:
        extension = msgspec.msgpack.decode(value, type=msgspec.msgpack.Ext)
        if extension.code != _EXTENSION:
            raise ValueError(f"extension {extension.code}, expected {_EXTENSION}")
        return msgspec.msgpack.decode(extension.data, type=Sealed)
    except (ValueError, msgspec.MsgspecError) as error:  # text that is none is a ValueError
        raise Undecryptable(f"not a value encrypted in format {_VERSION}: {error}") from error


def about_result(job_id: str, function: str, queue: str) -> About:
    return About(purpose="result", job=job_id, function=function, queue=queue)


def about_checkpoint(call: Payload) -> About:
    return About(purpose="checkpoint", job=call.id, function=call.function, queue=call.queue)


def about_arguments(
    call: Payload, *, template: str = "", takes: Mapping[str, str] | None = None
) -> About:
    """What a call's own arguments are bound to: its job, and all of the call that does not change.

    When a job is retried, taken from a schedule or handed results, ``dispatched_at`` and ``handed``
    change, and of a schedule's jobs ``expires_at``; the processes that do so need no key.

    Args:
        template: what the ids of the jobs begin with that will be made of it.
        takes: parameters that are handed over later, with the job whose result each is given.
    """
    fixed = msgspec.structs.replace(
        call,
        id="",
        arguments=msgspec.Raw(b"\xc0"),
        dispatched_at=0.0,
        expires_at=0.0 if template else call.expires_at,
        handed=None,
        step="",  # labels only; versions before they were there read the same
        workflow="",
        version=0,
    )
    read = payload.decode(payload.encode(fixed))  # as a reader has it: 5 and 5.0 are one
    return About(
        purpose="template" if template else "arguments",
        job=template or derived_ids.first_callback(call.id),
        function=call.function,
        queue=call.queue,
        call=payload.encode(read),
        takes=dict(takes or {}),
    )


def arguments(call: Payload, ring: KeyRing) -> bytes | msgspec.Raw:
    """A call's arguments, opened, with what was handed on.

    Raises:
        MissingKey, Undecryptable, msgspec.MsgspecError
    """
    if not holds_sealed(call):
        return call.arguments if not call.handed else call.all_arguments()
    own, takes = call.arguments, {}
    if is_sealed(own):
        sealed = unpack(own)
        takes = sealed.takes
        own = msgspec.Raw(
            ring.open(own, about_arguments(call, template=_template(call, sealed), takes=takes))
        )
    handed = {
        name: msgspec.Raw(_handed(value, call.id, takes.get(name), ring))
        for name, value in (call.handed or {}).items()
    }
    return msgspec.structs.replace(call, arguments=own, handed=handed).all_arguments()


def for_queue(call: Payload, queue: str, ring: KeyRing) -> Payload:
    """The call as one that waits in another queue; sealed arguments are sealed anew.

    Raises:
        MissingKey, Undecryptable
    """
    moved = msgspec.structs.replace(call, queue=queue)
    if not is_sealed(call.arguments):
        return moved
    sealed = unpack(call.arguments)
    about = about_arguments(call, template=_template(call, sealed), takes=sealed.takes)
    plain = ring.open(call.arguments, about)
    resealed = ring.seal(plain, about_arguments(moved, takes=sealed.takes))
    return msgspec.structs.replace(moved, arguments=msgspec.Raw(resealed))


def holds_sealed(call: Payload) -> bool:
    """Whether anything that goes into the call is sealed; then its result must be."""
    if is_sealed(call.arguments):
        return True
    return call.handed is not None and any(map(is_sealed, call.handed.values()))


def _template(call: Payload, sealed: Sealed) -> str:
    """The template that the call's job was made of by its schedule, if it was."""
    of_template = sealed.purpose == "template" and call.id.startswith(f"{sealed.job}-")
    return sealed.job if of_template else ""


def _handed(
    value: msgspec.Raw, job_id: str, taken_from: str | None, ring: KeyRing
) -> bytes | msgspec.Raw:
    """A result that was handed on; a sealed one opens where the call's own seal names its job."""
    if not is_sealed(value):
        return value
    sealed = unpack(value)
    if sealed.job != taken_from:
        raise Undecryptable(
            f"job {job_id} was handed the encrypted result of job {sealed.job[:80]}, "
            f"which its own arguments do not name (they name {taken_from or 'none'})"
        )
    return ring.open(value, about_result(sealed.job, sealed.function, sealed.queue))


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
    if keys:
        _check_supported()
    return KeyRing(keys)


def _check_supported() -> None:
    """Raises ConfigError where the cryptography library is missing, or lacks the cipher."""
    with needed("encryption", "encryption.key_file"):
        from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415
        from cryptography.hazmat.primitives.ciphers.aead import AESGCMSIV  # noqa: PLC0415

    try:
        AESGCMSIV(bytes(_KEY_BYTES))
    except UnsupportedAlgorithm as error:
        raise ConfigError(
            "encryption.key_file needs AES-GCM-SIV, which this build of the cryptography package "
            "lacks; install its wheel from PyPI, or build it against OpenSSL 3.2 or newer"
        ) from error


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
