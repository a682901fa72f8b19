"""A topic and its consumer group between looks: what waits, what is over, what is stuck."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

Reset = Literal["earliest", "latest"]


class Offsets(msgspec.Struct, frozen=True):
    """A partition at an instant.

    Attributes:
        low: offset of the first record that the broker still holds.
        end: offset that the next record will have.
        committed: next record for the group; None where it never committed one.
    """

    low: int
    end: int
    committed: int | None


class _Progress(msgspec.Struct):
    """Of one partition.

    Attributes:
        position: offset of the next record for the group.
        passed_at: when the group first committed in another partition while this one stayed behind;
            None where it does not stay behind.
        stuck_end: its end when it was found stuck; None where it is not.
    """

    position: int
    end: int
    committed: int | None
    passed_at: float | None = None
    stuck_end: int | None = None

    @property
    def waiting(self) -> int:
        """Records for the group; of those in a stuck partition only what came since."""
        return self.end - max(self.position, self.stuck_end or 0)


class TopicProgress:
    """Where a group stands in a topic, look by look.

    Attributes:
        epoch: grows when positions or ends go back, as those of a topic that was made anew: sums
            from before cannot be compared then.

    Args:
        reset: where a consumer begins that finds no committed offset (``auto.offset.reset``).
        stuck_seconds: a partition is stuck when its position stays behind for so long while the
            group goes on in others.
    """

    def __init__(self, reset: Reset, stuck_seconds: float) -> None:
        self.epoch = 0
        self._reset, self._stuck_seconds = reset, stuck_seconds
        self._partitions: dict[int, _Progress] = {}
        self._first_ends: dict[int, int] = {}
        self._skips: dict[int, tuple[int, int]] = {}

    def observe(self, offsets: Mapping[int, Offsets], now: float) -> None:
        """The topic was looked at.

        Args:
            offsets: of all its partitions.
            now: of a steady clock.
        """
        if self._has_gone_back(offsets):
            self.forget()
        moved = set()
        has_committed = False
        for partition, current in offsets.items():
            self._first_ends.setdefault(partition, current.end)
            position = self._position(partition, current)
            before = self._partitions.get(partition)
            if before is None:
                self._partitions[partition] = _Progress(position, current.end, current.committed)
                continue
            has_committed |= current.committed != before.committed
            if position != before.position or position == current.end:
                moved.add(partition)
                before.passed_at = before.stuck_end = None
            before.position, before.end, before.committed = position, current.end, current.committed
        if has_committed:
            self._find_stuck(self._partitions.keys() - moved, now)

    def forget(self) -> None:
        """The topic is not there, or is another one of the same name."""
        self.epoch += 1
        self._partitions, self._first_ends, self._skips = {}, {}, {}

    def skip(self, partition: int, offset: int) -> None:
        """There is no record between the partition's position and this offset."""
        progress = self._partitions[partition]
        if (offset := min(offset, progress.end)) > progress.position:
            start, end = self._skips.get(partition, (0, 0))
            is_next = end == progress.position
            self._skips[partition] = (start if is_next else progress.position, offset)
            progress.position = offset

    @property
    def partitions(self) -> int:
        """How many there are: more consumers than these have nothing to do."""
        return len(self._partitions)

    @property
    def lags(self) -> dict[int, int]:
        """Records that wait, by partition, where any do and it is not stuck."""
        return {
            nth: progress.waiting
            for nth, progress in self._partitions.items()
            if progress.waiting and progress.stuck_end is None
        }

    def position(self, partition: int) -> int:
        """Offset of the next record for the group."""
        return self._partitions[partition].position

    @property
    def stuck(self) -> int:
        """Records of partitions that are stuck, as far as they were there when that was found."""
        return self.waiting - sum(one.waiting for one in self._partitions.values())

    @property
    def waiting(self) -> int:
        return self.arrived - self.ended

    @property
    def arrived(self) -> int:
        return sum(progress.end for progress in self._partitions.values())

    @property
    def ended(self) -> int:
        return sum(progress.position for progress in self._partitions.values())

    def _has_gone_back(self, offsets: Mapping[int, Offsets]) -> bool:
        for partition, before in self._partitions.items():
            current = offsets.get(partition)
            if current is None or current.end < before.end:
                return True
            if self._position(partition, current) < before.position:
                return True
        return False

    def _position(self, partition: int, current: Offsets) -> int:
        """Where the group goes on: what retention removed is not waited for."""
        committed = current.committed
        if committed is None:
            # With `latest` a consumer skips what is there when it begins. What comes while there
            # is none counts from the first look: else none would ever be started (keda #4910).
            begin = current.low if self._reset == "earliest" else self._first_ends[partition]
        elif committed > current.end:  # of a topic that was made anew
            begin = current.low if self._reset == "earliest" else current.end
        else:
            begin = committed
        start, skipped_to = self._skips.get(partition, (0, 0))
        if start <= begin < skipped_to:
            begin = skipped_to
        return min(max(begin, current.low), current.end)

    def _find_stuck(self, behind: Iterable[int], now: float) -> None:
        """The group has committed, but not in the partitions that stayed behind."""
        for partition in behind:
            progress = self._partitions[partition]
            if progress.passed_at is None:
                progress.passed_at = now
            elif progress.stuck_end is None and now - progress.passed_at >= self._stuck_seconds:
                progress.stuck_end = progress.end
