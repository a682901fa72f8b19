"""Marks a coroutine as a workflow."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Coroutine, Sequence
from datetime import timedelta
from typing import Any, ClassVar, Concatenate, ParamSpec, TypeVar

from penstock.jobs import registry
from penstock.jobs.job_type import JobType, NamedJob
from penstock.jobs.middleware import Unique
from penstock.jobs.retry import DEFAULT_BACKOFF, Backoff, Delay
from penstock.jobs.retry import retries as put_in_order
from penstock.jobs.workflows.coded import step_options
from penstock.jobs.workflows.coded.context import WorkflowContext

P = ParamSpec("P")
R = TypeVar("R")
MAX_VERSION = 1_000_000_000


class WorkflowType(JobType[P, R]):
    """A coroutine marked as a workflow; calling it gives a call, to be dispatched.

    Several functions may be registered under one name, each of another version. The name stands
    for the newest: it is found in the registry, and leads to the others.

    Attributes:
        version: as its author declares it.
        compatible_with: versions whose instances it goes on with, too.
        whole_seconds: from its first advance to its end; 0: without a limit.
        digest: of its code; of another version of Python, another one.
        versions: all that are registered under its name.
    """

    kind = "workflow"

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        version: int,
        compatible_with: Sequence[int] = (),
        whole_seconds: float = 0.0,
        **options: Any,
    ) -> None:
        if not inspect.iscoroutinefunction(function):
            raise TypeError(f"{options['name']}: a workflow is an 'async def'")
        super().__init__(function, **options)
        self.is_async = False  # stepped by hand, in a thread of its own
        self.version, self.digest = version, _digest(function)
        self.compatible_with = frozenset(compatible_with)
        self.whole_seconds = whole_seconds
        self.versions: dict[int, WorkflowType[Any, Any]] = {version: self}

    def serving(self, version: int) -> WorkflowType[Any, Any] | None:
        """The function that goes on with an instance of a version; None where none does.

        Args:
            version: of the instance; 0 for one that has none yet, which the newest begins.

        Returns:
            That of the same version, else the newest that is compatible with it.
        """
        if not version:
            return self.versions[max(self.versions)]
        if version in self.versions:
            return self.versions[version]
        compatible = [one for one in self.versions.values() if version in one.compatible_with]
        return max(compatible, key=lambda one: one.version, default=None)

    def why_not(self, version: int) -> str:
        """Why no function here goes on with an instance of this version."""
        here = ", ".join(str(number) for number in sorted(self.versions))
        versions = "version" if len(self.versions) == 1 else "versions"
        return (
            f"{self.name}: it is of version {version}, here is {versions} {here}, and none is "
            f"declared compatible_with=[{version}]"
        )

    @property
    def shown_signature(self) -> str:
        """Name, parameters, and which versions there are."""
        versions = (
            f"{number}{sorted(self.versions[number].compatible_with) or ''}"
            for number in sorted(self.versions)
        )
        return f"{super().shown_signature} versions {', '.join(versions)}"

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
    compatible_with: Sequence[int] = (),
    timeout: float | timedelta = 0.0,
    tries: int = 0,
    timeout_seconds: float = 0.0,
    backoff: Backoff | Sequence[float] | Delay = DEFAULT_BACKOFF,
    tags: Sequence[str] = (),
    unique: Unique | None = None,
    encrypted: bool = False,
    masked: Sequence[str] = (),
) -> Callable[
    [Callable[Concatenate[WorkflowContext, P], Coroutine[Any, Any, R]]], WorkflowType[P, R]
]:
    """Marks a coroutine as a workflow: a job that is suspended while it waits.

    It runs from the top each time that it goes on; what its steps returned is kept. So its own code
    must do the same again: time, chance and work come from its context.

    Args:
        queue: where it waits when it goes on; a pool must take it.
        name: its name in messages; default is ``module.function``.
        version: of its code, recorded with each instance, which goes on with code of its own
            version: register the functions of several under one ``name``.
        compatible_with: versions whose instances this code goes on with, where theirs is not there.
        timeout: seconds that the whole may take, from its first advance on, whatever it waits for;
            generations of ``continue_as_new`` are parts of it. Then ``Cancelled`` is raised at its
            await, it may clean up as a cancelled one, and is dead (``workflow-timeout``). 0: none.
        tries: attempts of each advance that may fail; 0 takes the pool's. A lost worker is none:
            an advance is dead after ``jobs.max_lost_workers`` of these in a row.
        timeout_seconds: of each advance, not of the whole; 0 takes the pool's.
        backoff: delay between attempts of an advance that failed.
        tags: as of a job.
        unique: a dispatch is refused while an equal one counts; with ``until_ended``, while it
            goes on.
        encrypted: what it is given, records and returns, and what its steps are, is readable only
            with a key of ``encryption.key_file``.
        masked: names of fields, of arguments and of its status, that are never shown.

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

    checked = _checked_versions(version, compatible_with)
    whole_seconds = step_options.span("@workflow(timeout=...)", timeout).total_seconds()

    def mark(
        function: Callable[Concatenate[WorkflowContext, P], Coroutine[Any, Any, R]],
    ) -> WorkflowType[P, R]:
        kind: WorkflowType[P, R] = WorkflowType(
            function,
            version=version,
            compatible_with=checked,
            whole_seconds=whole_seconds,
            name=name or f"{function.__module__}.{function.__qualname__}",
            queue=queue,
            tries=tries,
            timeout_seconds=timeout_seconds,
            retries=put_in_order(backoff, (), ()),
            tags=registry.check_tags(tags),
            middleware=(unique,) if unique else (),
            encrypted=encrypted,
            masked=tuple(masked),
        )
        _register(kind)
        return kind

    return mark


def _checked_versions(version: object, compatible_with: Sequence[object]) -> tuple[int, ...]:
    """The versions that are compatible. Raises TypeError, ValueError."""
    checked = []
    for number in (version, *compatible_with):
        if not isinstance(number, int) or isinstance(number, bool):
            raise TypeError(f"a version is a whole number, found {number!r}")
        if not 1 <= number <= MAX_VERSION:
            raise ValueError(f"a version is 1 to {MAX_VERSION:,}, found {number}")
        checked.append(number)
    return tuple(checked[1:])


def _register(kind: WorkflowType[Any, Any]) -> None:
    """Lets messages name it, beside the other versions of its name.

    Raises:
        ValueError: its module has another job, or this version of the workflow, of the same name.
    """
    earlier = registry.REGISTRY.get(kind.name)
    if not isinstance(earlier, WorkflowType):
        registry.register(kind)
        return
    same = earlier.versions.get(kind.version)
    registry.check_not_hidden(kind, same)
    versions = {
        number: one
        for number, one in earlier.versions.items()
        if not _is_replaced(one, kind) and number != kind.version
    }
    versions[kind.version] = kind
    for one in versions.values():
        one.versions = versions
    registry.REGISTRY[kind.name] = versions[max(versions)]


def _is_replaced(earlier: WorkflowType[Any, Any], kind: WorkflowType[Any, Any]) -> bool:
    """Whether the module of both was executed anew since, and may lack the earlier one now."""
    is_same_module = earlier.function.__module__ == kind.function.__module__
    return is_same_module and earlier.made_in is not kind.made_in


def _digest(function: Callable[..., Any]) -> str:
    code = function.__code__
    parts = (code.co_code, repr(code.co_names).encode(), repr(code.co_varnames).encode())
    return hashlib.blake2b(b"".join(parts), digest_size=6).hexdigest()
