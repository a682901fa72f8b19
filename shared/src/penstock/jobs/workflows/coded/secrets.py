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
from penstock.jobs.job_type import Call
from penstock.jobs.payloads import encryption
from penstock.jobs.payloads.encryption import About, KeyRing, Purpose, is_sealed, unpack
from penstock.jobs.payloads.payload import Payload
from penstock.jobs.workflows.coded.commands import RunJob, WaitSignal
from penstock.jobs.workflows.coded.running.nodes import Leaf


class Secrets:
    """Seals and opens the values of one workflow.

    Args:
        ring: keys that open and seal.
        call: the encoded call of the workflow; None for one without anything to hide.
        generation: how often it began anew; results of inline steps and its status are bound to it.

    Attributes:
        are_sealed: whether what it records is to be sealed.
    """

    def __init__(
        self, ring: KeyRing | None = None, call: Payload | None = None, generation: int = 0
    ) -> None:
        self._ring, self._call, self._generation = ring or KeyRing(), call, generation
        self.are_sealed = call is not None and encryption.holds_sealed(call)

    def of_generation(self, generation: int) -> Secrets:
        """Those of a workflow that began anew so often: keys of its steps come again."""
        if not self.are_sealed or generation == self._generation:
            return self
        return Secrets(self._ring, self._call, generation)

    def opened(self, leaf: Leaf, end: Resolution) -> Resolution:
        """The same end with a value that can be decoded.

        Outcomes, errors and the counts of a batch are never sealed.

        Raises:
            MissingKey: this process lacks the key.
            Undecryptable: it was sealed for something else, or not at all where it must be.
        """
        match leaf.command, end.outcome:
            case WaitSignal(signal=signal), "received":
                plain = self.signal(signal, end.value)
            case RunJob(call=call), "completed":
                plain = self._result_of(call, leaf.n or 0, end.value)
            case _:
                return end
        return msgspec.structs.replace(end, value=plain)

    def _result_of(self, call: Call, n: int, value: bytes) -> bytes:
        """What step ``n`` returned. All steps of an encrypted workflow are dispatched encrypted."""
        step_id = derived_ids.step_id(self._call.id if self._call else "", n)
        if not is_sealed(value):
            is_none_stored = not value and not getattr(call.job, "store_result", False)
            if is_none_stored or not (self.are_sealed or call.job.encrypted):
                return value
            raise Undecryptable(
                f"the result of job {step_id} is not encrypted, and its arguments are: who stored "
                "it may hold no key"
            )
        sealed = unpack(value)
        if (sealed.job, sealed.function) != (step_id, call.job.name):
            raise Undecryptable(
                f"expected the encrypted result of job {step_id} ({call.job.name}), found one of "
                f"{sealed.job[:80]} ({sealed.function[:80]})"
            )
        about = encryption.about_result(sealed.job, sealed.function, sealed.queue)
        return self._ring.open(value, about)

    def sealed_result(self, result: InlineResult) -> InlineResult:
        """The result of an inline step as it is recorded. Raises MissingKey."""
        if not self.are_sealed or not result.value:
            return result
        value = self._seal("inline", result.key, result.value)
        return msgspec.structs.replace(result, value=value)

    def result(self, result: InlineResult) -> bytes:
        """What an inline step returned, encoded.

        Raises:
            MissingKey: this process lacks the key.
            Undecryptable: it was sealed for something else, or not at all where it must be.
        """
        return self._open("inline", result.key, result.value) if self.are_sealed else result.value

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
        is_of_generation = self._generation and purpose != "signal"  # sent without knowing of it
        bound_to = f"{self._generation}#{place}" if is_of_generation else place
        # Not bound to its queue: a workflow may be moved to another one.
        return About(
            purpose=purpose,
            job=call.id,
            function=call.function,
            queue="",
            call=bound_to.encode(),
        )


NONE = Secrets()
"""Of a workflow that hides nothing."""
