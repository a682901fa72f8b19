"""Jobs that were not started in the time that their dispatch allows."""

from __future__ import annotations

import logging

from penstock.bus.protocol import Bus, BusError, Delivery
from penstock.events.job import JobCancelled
from penstock.jobs.errors import UnreadableJob
from penstock.jobs.job_log import JobLog, trace_of
from penstock.worker.claiming.reading import Envelope
from penstock.worker.claiming.refusing import Refusals

log = logging.getLogger("penstock.worker")


class ExpiredJobs:
    """Ends them, by compare-and-set.

    Args:
        joblog: reads and appends their events.
        refusals: gives back what cannot be ended now.
    """

    def __init__(self, bus: Bus, joblog: JobLog, refusals: Refusals) -> None:
        self._bus, self._joblog, self._refusals = bus, joblog, refusals

    async def end(self, message: tuple[Delivery, Envelope]) -> bool:
        """Ends the job of a message; True when there is nothing to start.

        It is left to the usual way where it was started before, or its message is another's.
        """
        delivery, (call, _, _) = message
        try:
            if not await self._joblog.exists(call.id):
                return False  # without reading more: there may be thousands of them
            record = await self._joblog.read_checked(call.id)
            if record is None or record.started_at or record.life > 1 or record.state.ended:
                return False
            if record.payload != delivery.body:
                return False  # the usual way knows what to do
            late = self._bus.now() - call.expires_at
            event = JobCancelled(
                job_id=call.id,
                correlation_id=call.id,
                source=self._joblog.source,
                reason=f"it expired {late:.1f} s before it could be started",
                cause="expired",
                function=call.function,
            )
            trace = trace_of(delivery.headers)
            await self._bus.append(self._joblog.outgoing(event, record.sequence, trace))
        except (BusError, UnreadableJob) as error:
            log.warning("job %s is given back: %s", call.id, error)
            await self._refusals.give_back_later([delivery])
            return True
        except Exception as error:
            await self._refusals.put_aside(delivery, error)
            return True
        await self._bus.ack([delivery])
        return True
