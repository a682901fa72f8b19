"""Marks a coroutine as a workflow."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, ClassVar, Concatenate, ParamSpec, TypeVar

from penstock.jobs import registry
from penstock.jobs.job_type import JobType, NamedJob
from penstock.jobs.retry import DEFAULT_BACKOFF, Backoff, Delay
from penstock.jobs.retry import retries as put_in_order
from penstock.jobs.workflows.coded.context import WorkflowContext

P = ParamSpec("P")
R = TypeVar("R")


class WorkflowType(JobType[P, R]):
    """A coroutine marked as a workflow; calling it gives a call, to be dispatched.

    Attributes:
        version: as its author declares it.
        digest: of its code; of another version of Python, another one.
    """

    kind = "workflow"

    def __init__(self, function: Callable[..., Any], *, version: int, **options: Any) -> None:
        if not inspect.iscoroutinefunction(function):
            raise TypeError(f"{options['name']}: a workflow is an 'async def'")
        super().__init__(function, **options)
        self.is_async = False  # stepped by hand, in a thread of its own
        self.version, self.digest = version, _digest(function)

    def _split(self) -> tuple[bool, list[inspect.Parameter]]:
        parameters = list(self.signature.parameters.values())
        if not parameters:
            raise TypeError(
                f"{self.name}: the first parameter of a workflow is its context: "
                "async def fulfil(ctx: WorkflowContext, ...)"
            )
        unfit = {
            inspect.Parameter.VAR_POSITIONAL,
            inspect.Parameter.VAR_KEYWORD,
            inspect.Parameter.POSITIONAL_ONLY,
        }
        for parameter in parameters[1:]:
            if parameter.kind in unfit:
                raise TypeError(f"{self.name}: {parameter} cannot be typed; name each argument")
        return True, parameters[1:]


class NamedWorkflow(NamedJob):
    """A workflow whose code this program lacks; see :class:`NamedJob`.

    Example::

        fulfil = NamedWorkflow("shop.orders.fulfil", queue="workflows")
        await client.dispatch(fulfil(order=7))
    """

    kind: ClassVar[str] = "workflow"


def workflow(
    *,
    queue: str = "workflows",
    name: str = "",
    version: int = 1,
    tries: int = 0,
    timeout_seconds: float = 0.0,
    backoff: Backoff | Sequence[float] | Delay = DEFAULT_BACKOFF,
    tags: Sequence[str] = (),
) -> Callable[
    [Callable[Concatenate[WorkflowContext, P], Coroutine[Any, Any, R]]], WorkflowType[P, R]
]:
    """Marks a coroutine as a workflow: a job that is suspended while it waits.

    It runs from the top each time that it goes on; what its steps returned is kept. So its own code
    must do the same again: time, chance and work come from its context.

    Args:
        queue: where it waits when it goes on; a pool must take it.
        name: its name in messages; default is ``module.function``.
        version: of its code, shown with each instance.
        tries: attempts of each advance that may fail; 0 takes the pool's.
        timeout_seconds: of each advance, not of the whole; 0 takes the pool's.
        backoff: delay between attempts of an advance that failed.
        tags: as of a job.

    Raises:
        ValueError, TypeError: what is given cannot be.

    Example::

        @workflow()
        async def fulfil(ctx: WorkflowContext, order: int) -> str:
            receipt = await ctx.run(charge(order=order))
            await ctx.sleep(timedelta(hours=1))
            return await ctx.run(ship(order=order, receipt=receipt))

        await client.dispatch(fulfil(order=7))
    """

    def mark(
        function: Callable[Concatenate[WorkflowContext, P], Coroutine[Any, Any, R]],
    ) -> WorkflowType[P, R]:
        kind: WorkflowType[P, R] = WorkflowType(
            function,
            version=version,
            name=name or f"{function.__module__}.{function.__qualname__}",
            queue=queue,
            tries=tries,
            timeout_seconds=timeout_seconds,
            retries=put_in_order(backoff, (), ()),
            tags=registry.check_tags(tags),
        )
        registry.register(kind)
        return kind

    return mark


def _digest(function: Callable[..., Any]) -> str:
    code = function.__code__
    parts = (code.co_code, repr(code.co_names).encode(), repr(code.co_varnames).encode())
    return hashlib.blake2b(b"".join(parts), digest_size=6).hexdigest()
