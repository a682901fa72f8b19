"""What strangers who hold the roles' keys write, on each subject that a key may publish to."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import nats
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from tests.chaos.chaos_jobs import QUEUE
from tests.chaos.plan import Fault
from tests.chaos.recovery import STALLED_SECONDS
from tests.chaos.site import Site
from tests.integration.forging import Forged, on
from tests.integration.guarded import GuardedBroker, join
from tests.waiting import eventually

from penstock.bus.protocol import BusError
from penstock.cli.deploy.roles import ROLES

WRITERS = tuple(name for name, role in ROLES.items() if role.publishes)
_QUEUES = ("penstock.jobs.", "penstock.schedules.")
_ROUNDS = 3
"""The first that Hypothesis draws is the plainest."""


async def forge(site: Site, fault: Fault) -> None:
    """Afterwards the leader of the deciders, which a forged command may have passed, commands."""
    assert isinstance(site.broker, GuardedBroker), "the plan's broker asks for no keys"
    hosts = [host.settings.host.name for host in site.hosts]
    for role in WRITERS:
        await _send(site.broker, role, messages(role, fault.pick, [QUEUE, *hosts]))
    await eventually(lambda: _commanded(site), STALLED_SECONDS, "a command")


def messages(role: str, pick: float, targets: Sequence[str]) -> list[Forged]:
    """Some for each pattern that ``role`` may publish to: the same for the same arguments.

    Args:
        targets: pools and hosts that there are.
    """
    drawn: list[Forged] = []
    patterns = ROLES[role].publishes

    @seed(int(pick * 2**32))
    @settings(
        max_examples=_ROUNDS,
        phases=[Phase.generate],
        deadline=None,
        database=None,
        derandomize=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.tuples(*(on(pattern, targets) for pattern in patterns)))
    def draw(made: tuple[Forged, ...]) -> None:
        drawn.extend(made)

    draw()
    return [message for message in drawn if not _erases_queues(message)]


def _erases_queues(message: Forged) -> bool:
    """Whether it removes all queues' messages, which no key can be kept from.

    nats-server allows rollups wherever it allows schedules, and permissions do not see headers.
    What waits is made again from the event log by the orchestrator, once; what is delayed is not.
    """
    return message.subject.startswith(_QUEUES) and "Nats-Rollup" in message.headers


async def _send(broker: GuardedBroker, role: str, made: list[Forged]) -> None:
    while True:
        try:
            client = await join(broker, role)
            for message in made:
                headers = dict(message.headers) or None
                await client.publish(message.subject, message.body, headers=headers)
            await client.flush()
            await client.close()
            return
        except (OSError, TimeoutError, nats.errors.Error):  # another fault is at work
            await asyncio.sleep(0.2)


async def _commanded(site: Site) -> bool:
    try:
        await site.command()
    except BusError:
        return False
    return True
