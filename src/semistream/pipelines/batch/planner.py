"""BatchPlanner: fix all inputs of the next batch before any work, and record them in the ledger."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from semistream.costs.profiles import machine_for
from semistream.errors import PipelineError
from semistream.pipelines.batch.version_pins import VersionPins
from semistream.pipelines.ledger.entries import ArchivedFile, Plan, WaitingFile
from semistream.pipelines.ledger.ledger import Ledger
from semistream.pipelines.plan.step_plans import StepPlans
from semistream.pipelines.spec.durations import parse_duration
from semistream.pipelines.spec.pipeline_spec import PipelineSpec
from semistream.pipelines.task.waiting_rows import Deferral, WaitingPolicy
from semistream.relation import Relation
from semistream.relation.format.manifest import get_current, list_versions


class BatchPlanner:
    """Planner of batches: the version of each relation, the waiting rows that go on, and the files to repair.

    The ledger has the plan before the batch begins, so that a batch replayed after a crash does the same work.
    """

    def __init__(self, spec: PipelineSpec, steps: StepPlans, ledger: Ledger, clock: Callable[[], float]) -> None:
        self._steps, self._ledger, self._clock = steps, ledger, clock
        self._deferral = None if spec.latency is None else _deferral(spec, steps.paths)
        self._pins = VersionPins(ledger, clock)
        self._last_drain_s = 0.0

    def plan(
        self,
        source_batch: int | None,
        files: list[str],
        *,
        all_deferred: bool = False,
        repaired: Sequence[ArchivedFile] = (),
    ) -> Plan:
        """Plan and record the next batch. ``source_batch`` is None for a batch without new source rows."""
        last, now = self._ledger.last_plan, self._clock()
        drains = all_deferred or self._is_due()
        versions = {path: get_current(Path(path)) for path in self._steps.paths}
        self._pins.hold(versions)
        plan = Plan(
            batch=0 if last is None else last.batch + 1,
            source_batch=source_batch,
            versions=versions,
            at=now,
            drains=drains,
            taken=self._taken(now, drains=drains),
            files=files,
            rejected=sorted(path.name for path in self._ledger.updates_folder.glob("*.rejected.parquet")),
            repaired=list(repaired),
        )
        self._ledger.write_plan(plan)
        return plan

    def renewed(self, plan: Plan, *, begun: bool) -> Plan:
        """Return the plan of an unfinished batch, with present versions in place of those that are gone.

        Nothing depends on the versions of a batch of which no work is recorded. If one has ``begun``, only relations of
        keys may change, which never lose a key: other rows of the batch have met the version that is gone.
        """
        gone = [path for path, version in plan.versions.items() if version not in list_versions(Path(path))]
        joined = {step.join.path for step in self._steps.steps if step.keys is None}
        if begun and (lost := [path for path in gone if path in joined]):
            version, have = plan.versions[lost[0]], ", ".join(map(str, list_versions(Path(lost[0]))))
            raise PipelineError(
                f"rows of batch {plan.batch} were joined with version {version} of {lost[0]}, which is gone: it has "
                f"{have}. A vacuum keeps it for a week after the pipeline was killed. Restore the version from a copy, "
                "or give the pipeline a new checkpoint and new tables."
            )
        if gone:
            plan = replace(plan, versions=plan.versions | {path: get_current(Path(path)) for path in gone})
            self._ledger.write_plan(plan)
        self._pins.hold(plan.versions)
        return plan

    def release(self) -> None:
        """Let others remove the versions of the last batch, if it is finished."""
        if self._ledger.open_plan is None:
            self._pins.release(self._steps.paths)

    def has_rows_to_take(self, *, all_deferred: bool) -> bool:
        """True if waiting rows can go on in a batch of their own."""
        return bool(self._taken(self._clock(), drains=all_deferred or self._is_due()))

    def drained(self, seconds: float) -> None:
        """Record the duration of a batch that drained deferred rows."""
        self._last_drain_s = seconds

    def _is_due(self) -> bool:
        """True if deferred rows must go on now."""
        if self._deferral is None:
            return True
        return self._deferral.is_due(self._ledger.waiting, self._clock(), self._last_drain_s)

    def _taken(self, now: float, *, drains: bool) -> list[WaitingFile]:
        versions = [get_current(Path(path)) for path in self._steps.paths]
        policy = WaitingPolicy(versions, [step.retry_s for step in self._steps.steps])
        return policy.taken(self._ledger.waiting, now, drains=drains)


def _deferral(spec: PipelineSpec, paths: Sequence[str]) -> Deferral:
    """Return the rule for when rows that wait to share a pass over the relations go on."""
    assert spec.latency is not None
    pass_s = 0.0
    for path in paths:
        relation = Relation.open(path)
        pass_s += machine_for(relation.path).disk.request_s(relation.nbytes, relation.num_pages)
    return Deferral(parse_duration(spec.latency), pass_s, parse_duration(spec.every))
