"""What an encrypted workflow records, and is given, is for the holders of the key only. Pure.

An encrypted workflow is one whose arguments are sealed. Its steps are sealed as jobs are, and what
they return; so are results of inline steps, values of signals, and its status. What was sealed is
bound to the workflow and the place in it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.config.masking import masked
from penstock.events.workflow_memo import (
    InlineResult,
    Resolution,
    Status,
)
from penstock.jobs import derived_ids
from penstock.jobs.errors import Undecryptable
from penstock.jobs.payloads import encryption
from penstock.jobs.payloads.encryption import About, KeyRing, Purpose, is_sealed, unpack
from penstock.jobs.payloads.payload import Payload
from penstock.jobs.workflows.coded.nodes import Leaf


class Secrets:
    """Seals and opens the values of one workflow.

    Args:
        ring: keys that open and seal.
        call: the encoded call of the workflow; None for one without anything to hide.

    Attributes:
        are_sealed: whether what it records is to be sealed.
    """

    def __init__(self, ring: KeyRing | None = None, call: Payload | None = None) -> None:
        self._ring, self._call = ring or KeyRing(), call
        self.are_sealed = call is not None and encryption.holds_sealed(call)

    def opened(self, leaf: Leaf, end: Resolution) -> Resolution:
        """The same end with a value that can be decoded.

        Raises:
            MissingKey: this process lacks the key.
            Undecryptable: it was sealed for something else, or not at all where it must be.
        """
        if not is_sealed(end.value):
            return end
        is_signal = leaf.kind == "signal"
        plain = (
            self.signal(leaf.digest, end.value) if is_signal else self._open_result(leaf, end.value)
        )
        return msgspec.structs.replace(end, value=plain)

    def _open_result(self, leaf: Leaf, value: bytes) -> bytes:
        sealed = unpack(value)
        step_id = derived_ids.step_id(self._call.id if self._call else "", leaf.n or 0)
        if sealed.job != step_id:
            raise Undecryptable(
                f"expected the encrypted result of job {step_id}, found one of {sealed.job[:80]}"
            )
        about = encryption.about_result(sealed.job, sealed.function, sealed.queue)
        return self._ring.open(value, about)

    def sealed_result(self, result: InlineResult) -> InlineResult:
        """The result of an inline step as it is recorded. Raises MissingKey."""
        if not self.are_sealed or not result.value:
            return result
        value = self._seal("inline", result.key, result.value)
        return InlineResult(result.key, result.digest, value, result.error)

    def result(self, result: InlineResult) -> bytes:
        """What an inline step returned, encoded. Raises MissingKey, Undecryptable."""
        if not is_sealed(result.value):
            return result.value
        return self._open("inline", result.key, result.value)

    def sealed_call(self, call: Payload) -> Payload:
        """A call of the workflow with other arguments, as it is recorded. Raises MissingKey."""
        if not self.are_sealed:
            return call
        sealed = self._ring.seal(call.arguments, encryption.about_arguments(call))
        return msgspec.structs.replace(call, arguments=msgspec.Raw(sealed))

    def status(self, status: Status) -> dict[str, Any]:
        """A status as the fields of ``WorkflowAdvanced``. Raises MissingKey."""
        if not status or self._call is None:
            return {"status": status}
        if not self.are_sealed:
            return {"status": masked(status, self._call.masked)}
        encoded = msgspec.msgpack.encode(masked(status, self._call.masked))
        return {"status": {}, "sealed_status": self._seal("status", "", encoded)}

    def opened_status(self, value: bytes) -> Status:
        """A sealed status. Raises MissingKey, Undecryptable."""
        return msgspec.msgpack.decode(self._open("status", "", value), type=Status)

    def signal(self, name: str, value: bytes) -> bytes:
        """What was sent. Raises MissingKey; Undecryptable where it is not sealed but must be."""
        return self._open("signal", name, value) if self.are_sealed else value

    def sealed_signal(self, name: str, value: bytes) -> bytes:
        """The value of a signal as it is sent. Raises MissingKey."""
        return self._seal("signal", name, value) if self.are_sealed else value

    def _seal(self, purpose: Purpose, place: str, value: bytes) -> bytes:
        return self._ring.seal(value, self._about(purpose, place))

    def _open(self, purpose: Purpose, place: str, value: bytes) -> bytes:
        if not is_sealed(value):
            raise Undecryptable(
                f"the {purpose} {place!r} is not encrypted, and its workflow is: its sender may "
                "hold no key"
            )
        return self._ring.open(value, self._about(purpose, place))

    def _about(self, purpose: Purpose, place: str) -> About:
        assert self._call is not None
        call = self._call
        # Not bound to its queue: a workflow may be moved to another one.
        return About(
            purpose=purpose,
            job=call.id,
            function=call.function,
            queue="",
            call=place.encode(),
        )


NONE = Secrets()
"""Of a workflow that hides nothing."""
