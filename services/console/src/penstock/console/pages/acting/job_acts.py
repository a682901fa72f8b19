"""Acts on jobs, workflows, graphs and batches, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.console.pages.acting.page_act import FLAG, REASON, Field, PageAct
from penstock.console.web.scopes import Scope

_JOB: dict[str, Any] = {"page": "/jobs/{key}", "noun": "job", "scope": Scope.JOBS}
_SIGNAL = (
    Field(name="name", label="Signal", is_required=True, about="The name that a step waits for."),
    Field(name="value", label="Value (JSON)", kind="json", about="Empty: null."),
)
_TAG = Field(name="tag", label="Tag", is_required=True, about="Up to 100 characters.")


def _job_acts() -> Sequence[PageAct]:
    return (
        PageAct(
            **_JOB,
            name="job.retry",
            label="Run again",
            path="/jobs/{key}/retry",
            effect="The job is queued again with all its tries, with the same id and arguments. "
            "What it did before is done again unless its code prevents that.",
            done="The job is queued again.",
            fields=(REASON,),
            body={},
        ),
        PageAct(
            **_JOB,
            name="job.cancel",
            label="Cancel",
            path="/jobs/{key}/cancel",
            effect="The job is not started any more; where it runs, its worker stops it. It can "
            "be run again later.",
            done="The job is cancelled.",
            fields=(REASON,),
            body={},
            is_grave=True,
        ),
        PageAct(
            **_JOB,
            name="dead.delete",
            label="Discard",
            method="DELETE",
            path="/dead/{key}",
            effect="Its dead letter is deleted: the job stays dead, keeps its history, and is not "
            "among those that are run again together.",
            done="Its dead letter is deleted.",
            is_grave=True,
        ),
        PageAct(
            **_JOB,
            name="job.recover",
            label="Recover if stuck",
            path="/jobs/{key}/recover",
            effect="Its host judges whether the job is stuck. Then the job is asked to stop, else "
            "its worker is ended, and another worker goes on.",
            done="Its host was asked.",
            fields=(
                Field(
                    name="strategy",
                    label="How",
                    kind="choice",
                    value="graceful",
                    choices=("graceful", "checkpoint", "restart"),
                    about="restart forgets its checkpoint.",
                ),
            ),
            body={},
        ),
        PageAct(
            **_JOB,
            name="job.tag",
            label="Tag",
            method="PUT",
            path="/jobs/{key}/tags/{tag}",
            effect="The job has this tag from now on; it goes on as it is. Lists find it by tags.",
            done="The job has the tag.",
            fields=(_TAG,),
        ),
        PageAct(
            **_JOB,
            name="job.untag",
            label="Remove a tag",
            method="DELETE",
            path="/jobs/{key}/tags/{tag}",
            effect="The job has this tag no more; it goes on as it is.",
            done="The tag is removed.",
            fields=(_TAG,),
        ),
    )


def _flow_acts() -> Sequence[PageAct]:
    """Of workflows, whose steps their code decides, and of graphs, chains and instances."""
    acts: list[PageAct] = []
    for noun, folder in (("workflow", "workflows"), ("graph", "graphs")):
        shared: dict[str, Any] = {
            "page": "/workflows/{key}",
            "noun": "workflow",
            "scope": Scope.JOBS,
            "body": {},
        }
        acts += [
            PageAct(
                **shared,
                name=f"{noun}.cancel",
                label="Cancel",
                path=f"/{folder}/{{key}}/cancel",
                effect="No further step is started and those that run are cancelled"
                + ("; its code may clean up." if noun == "workflow" else "."),
                done="It is being cancelled.",
                fields=(REASON,),
                is_grave=True,
            ),
            PageAct(
                **shared,
                name=f"{noun}.pause",
                label="Pause",
                path=f"/{folder}/{{key}}/pause",
                effect="No further step is started until it is resumed; steps that run go on.",
                done="It is paused.",
                fields=(REASON,),
            ),
            PageAct(
                **shared,
                name=f"{noun}.resume",
                label="Resume",
                path=f"/{folder}/{{key}}/resume",
                effect="It goes on where it was paused.",
                done="It goes on.",
                fields=(REASON,),
            ),
            PageAct(
                **shared,
                name=f"{noun}.signal",
                label="Send a signal",
                path=f"/{folder}/{{key}}/signal",
                effect="The value is given to the step that waits for the signal of this name"
                + (", now or later." if noun == "workflow" else "."),
                done="The signal is stored.",
                fields=_SIGNAL,
            ),
        ]
    acts.append(_fix())
    acts.append(
        PageAct(
            name="graph.retry-failed",
            label="Run failed steps again",
            path="/graphs/{key}/retry-failed",
            page="/workflows/{key}",
            noun="workflow",
            scope=Scope.JOBS,
            effect="Its failed steps are queued again, and what comes after them is done.",
            done="Its failed steps are queued again.",
            body={},
        )
    )
    return acts


def _fix() -> PageAct:
    return PageAct(
        name="workflow.fix",
        label="Fix",
        path="/workflows/{key}/fix",
        page="/workflows/{key}",
        noun="workflow",
        scope=Scope.JOBS,
        effect="One of the three changes what the blocked workflow goes on from. It is recorded as "
        "an event, and the workflow is offered to a worker at once.",
        done="It is offered to a worker; below stands whether it goes on.",
        fields=(
            Field(
                name="forget",
                label="Forget these steps",
                kind="names",
                about="Keys, with commas between them: their records count no more, and jobs that "
                "still run for them are cancelled.",
            ),
            Field(
                name="version",
                label="Go on with version",
                kind="whole",
                about="Of the code that is to run it from now on.",
            ),
            Field(
                name="accept",
                label="Accept what is recorded",
                kind="flag",
                value=FLAG[0],
                choices=FLAG,
                about="Results count although the code calls another function, or with other "
                "arguments, under their keys.",
            ),
            REASON,
        ),
        body={},
        is_grave=True,
    )


def _batch_acts() -> Sequence[PageAct]:
    shared: dict[str, Any] = {
        "page": "/batches/{key}",
        "noun": "batch",
        "scope": Scope.JOBS,
        "body": {},
    }
    return (
        PageAct(
            **shared,
            name="batch.cancel",
            label="Cancel",
            path="/batches/{key}/cancel",
            effect="All its jobs that have not ended are cancelled.",
            done="Its jobs are being cancelled.",
            fields=(REASON,),
            is_grave=True,
        ),
        PageAct(
            **shared,
            name="batch.retry-failed",
            label="Run failed jobs again",
            path="/batches/{key}/retry-failed",
            effect="Its failed jobs are queued again with all their tries.",
            done="Its failed jobs are queued again.",
        ),
    )


JOB_ACTS = (*_job_acts(), *_flow_acts(), *_batch_acts())
