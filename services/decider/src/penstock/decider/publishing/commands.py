"""The one command: each host's full plan, fenced, only when it changed."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

import msgspec

from penstock.bus.protocol import Bus, BusError, Expect, Outgoing, Stored, WrongSequence
from penstock.decider.decoding import read
from penstock.decider.publishing import spans
from penstock.events.envelope import encode
from penstock.events.scaling import SCALING_EVENTS, WorkersScaled
from penstock.events.subjects import Subjects
from penstock.runtime import epochs

log = logging.getLogger("penstock.decider")

Plan = dict[str, int]
_MOST_HOSTS = 100_000
_FORGOTTEN_AT_ONCE = 50


class Deposed(Exception):
    """A newer leader has commanded a host: this leader's further commands are void."""


class _Sent(msgspec.Struct, frozen=True):
    """The last command of a host's subject.

    Attributes:
        sequence: of its message; 0 for none.
        plan: None where another leader sent it, so that it is sent anew.
    """

    sequence: int = 0
    plan: Plan | None = None


class Commander:
    """Sends one leader's commands.

    Args:
        epoch: the leader's fencing token; versions count up from 1 within it.
    """

    def __init__(self, bus: Bus, subjects: Subjects, source: str, epoch: int) -> None:
        self._bus, self._subjects, self._source, self._epoch = bus, subjects, source, epoch
        self._sent: dict[str, _Sent] = {}
        self._commanded: dict[str, Plan] = {}
        self._version = 0

    async def load(self) -> dict[str, WorkersScaled]:
        """Each host's last command; all of them will be sent again in this leader's name."""
        commands: dict[str, WorkersScaled] = {}
        stream, every_host = self._subjects.commands_stream, self._subjects.command("*")
        for stored in await self._bus.history(stream, every_host, limit=_MOST_HOSTS):
            host = stored.subject.rsplit(".", 1)[-1]
            self._sent[host] = _Sent(stored.sequence)
            if (command := _decode(stored)) is not None and await self._is_sound(command):
                commands[host] = command
        return commands

    async def send(
        self,
        plans: Mapping[str, Plan],
        decision_ids: Mapping[str, str],
        decision_spans: spans.DecisionSpans,
        repeat: Collection[str] = (),
    ) -> list[WorkersScaled]:
        """Commands the hosts whose plan changed; the next round retries what is not stored.

        Args:
            repeat: hosts that are commanded whether or not their plan changed.

        Raises:
            Deposed: a newer leader has commanded a host.
        """
        changed = [
            host for host in sorted(plans) if host in repeat or self._is_news(host, plans[host])
        ]
        if not changed:
            return []
        commands = [self._command(host, plans[host], decision_ids) for host in changed]
        with decision_spans.commands(commands, self._changed_pools) as headers:
            answers = await self._bus.append_many(
                [
                    Outgoing(
                        self._subjects.command(command.host),
                        encode(command),
                        headers.get(command.host, {}),
                        Expect(self._sent.get(command.host, _Sent()).sequence),
                    )
                    for command in commands
                ]
            )
        done = []
        for command, answer in zip(commands, answers, strict=True):
            if isinstance(answer, int):
                self._sent[command.host] = _Sent(answer, command.pools)
                done.append(command)
            else:
                await self._refused(command, answer)
        return done

    async def forget(self, hosts: Collection[str]) -> None:
        """Deletes the commands of some hosts that are not among ``hosts`` any more.

        Raises:
            BusError: it may not, or the broker does not answer.
        """
        forgotten = [host for host in self._sent if host not in hosts]
        # a few in each round, which must not wait for thousands of deletions
        for host in forgotten[:_FORGOTTEN_AT_ONCE]:
            last = self._sent[host].sequence
            subject = self._subjects.command(host)
            await self._bus.remove(self._subjects.commands_stream, subject, before=last + 1)
            del self._sent[host]
            self._commanded.pop(host, None)

    def _is_news(self, host: str, plan: Plan) -> bool:
        # most hosts' plans are the very values of the last round, and some hold hundreds of pools
        if self._commanded.get(host) is plan:
            return False
        if self._plan_of(host) != plan:
            return True
        self._commanded[host] = plan
        return False

    def _plan_of(self, host: str) -> Plan | None:
        return self._sent.get(host, _Sent()).plan

    def _changed_pools(self, command: WorkersScaled) -> list[str]:
        before = self._plan_of(command.host) or {}
        pools = sorted(before.keys() | command.pools.keys())
        return [pool for pool in pools if before.get(pool, 0) != command.pools.get(pool, 0)]

    def _command(self, host: str, plan: Plan, decision_ids: Mapping[str, str]) -> WorkersScaled:
        self._version += 1
        command = WorkersScaled(
            source=self._source,
            host=host,
            epoch=self._epoch,
            version=self._version,
            pools=dict(sorted(plan.items())),
        )
        ids = [decision_ids[pool] for pool in self._changed_pools(command) if pool in decision_ids]
        return msgspec.structs.replace(
            command, decision_ids=tuple(ids), causation_id=ids[0] if ids else None
        )

    async def _refused(self, command: WorkersScaled, error: BusError) -> None:
        """Finds the cause: an own write whose acknowledgement was lost, a late write of a deposed
        leader, or a newer leader."""
        log.warning("command to host %s was not stored: %s", command.host, error)
        if not isinstance(error, WrongSequence):
            return
        try:
            stored = await self._bus.last(
                self._subjects.commands_stream, self._subjects.command(command.host)
            )
        except BusError as unavailable:
            log.warning("cannot read the commands of host %s: %s", command.host, unavailable)
            return
        self._sent[command.host] = _Sent(stored.sequence if stored else 0)
        self._commanded.pop(command.host, None)
        if stored and (last := _decode(stored)) is not None and await self._is_sound(last):
            self._step_back(last)

    async def _is_sound(self, command: WorkersScaled) -> bool:
        """False for a command that no leader can have sent: it is overwritten.

        Raises:
            Deposed: a newer leader has commanded a host.
        """
        if command.epoch <= self._epoch:
            return True
        reached = await epochs.reached(self._bus, self._subjects)
        text = f"host {command.host} was commanded in epoch {command.epoch} by {command.source}"
        if reached is not None and command.epoch <= reached:
            raise Deposed(text)
        log.error("%s, but the lease has reached %s: it is overwritten", text, reached)
        return False

    def _step_back(self, command: WorkersScaled) -> None:
        """Ends this term if another process commands in its epoch: the next epoch is newer."""
        if command.order > (self._epoch, self._version):
            raise Deposed(f"{command.source} commands host {command.host} in our epoch")


def _decode(stored: Stored) -> WorkersScaled | None:
    command = read(SCALING_EVENTS, stored)
    return command if isinstance(command, WorkersScaled) else None
