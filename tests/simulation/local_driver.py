"""A driver of a pipeline without Spark: it divides a folder's files into batches as Spark does, and runs them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

from semistream.pipelines.batch.batch_report import BatchReport
from semistream.pipelines.batch.batch_runner import BatchRunner
from semistream.pipelines.ledger.ledger import Ledger
from semistream.pipelines.open_tables import open_tables
from semistream.pipelines.plan.step_plans import plan_steps
from semistream.pipelines.spec.source_spec import FileSource
from semistream.pipelines.spec.yaml_file import make_spec
from semistream.pipelines.tables.table import Owner
from semistream.pipelines.updates.relation_updates import all_updates
from tests.simulation.local_workers import LocalWorkers
from tests.simulation.world import Kill, World


class BatchLog:
    """Record of a source's batches, as Spark keeps it: the files of a batch before it runs, its end after that."""

    def __init__(self, folder: Path, source: FileSource, *, one_each: bool, unlimited: bool) -> None:
        self._offsets, self._commits, self._source = folder / "offsets", folder / "commits", source
        self._most = 1 if one_each else None if unlimited else source.files_per_batch
        for part in (self._offsets, self._commits):
            part.mkdir(parents=True, exist_ok=True)

    def batches(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the batches that have not ended, then new ones until no file is new."""
        while True:
            number = len(list(self._commits.glob("[0-9]*")))
            entry = self._offsets / str(number)
            if not entry.exists():
                taken = {name for other in self._offsets.glob("[0-9]*") for name in json.loads(other.read_text())}
                there = [path for path in self._source.path.iterdir() if not path.name.startswith(("_", "."))]
                there.sort(key=lambda path: (path.stat().st_mtime_ns, path.name))
                new = [str(path) for path in there if str(path) not in taken][: self._most]
                if not new:
                    return
                _write(entry, json.dumps(new))
            yield number, json.loads(entry.read_text())
            _write(self._commits / str(number), "")


def _write(path: Path, text: str) -> None:
    """Write a file whole, or leave none."""
    hidden = path.with_name(f".{path.name}")
    hidden.write_text(text)
    hidden.replace(path)


class LatePublisher(Executor):
    """Publisher that works when somebody waits for it: the latest moment that a thread could choose."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        return _Late(lambda: fn(*args, **kwargs))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Do nothing."""


class _Late(Future[Any]):
    def __init__(self, work: Callable[[], Any]) -> None:
        super().__init__()
        self._work = work

    def done(self) -> bool:
        return False

    def result(self, timeout: float | None = None) -> Any:  # noqa: ARG002
        return self._work()


def drive(
    world: World,
    content: dict[str, Any],
    *,
    slots: int = 2,
    kill: Kill | None = None,
    late: bool = False,
    only_repair: bool = False,
    watch: Callable[[BatchReport], None] = lambda _: None,
) -> None:
    """Run a pipeline until its source has nothing new and no row can go on, or repair its shed rows.

    With ``late``, a batch is published when the next one begins. A ``kill`` that is not of the role "driver" strikes
    tasks.
    """
    spec = make_spec(content)
    source = spec.source
    assert isinstance(source, FileSource)
    steps = plan_steps(spec, source.arrow_schema, slots)
    with Ledger.open(spec.checkpoint, spec.name) as ledger:
        tables = open_tables(spec, steps.source, steps.joined, Owner(spec.name, ledger.token), {})
        updates = all_updates(spec.steps, ledger, ledger.writer)
        workers = LocalWorkers(world, spec, slots, updates, kill)
        batches = BatchRunner(spec, steps, workers, tables, ledger, watch, world.clock, LatePublisher())
        if not late:
            world.run_orphans()
        batches.recover()
        if only_repair:
            batches.reconcile(lambda: False)
            return
        batches.publishes_later = late
        snapshots = steps.changes is not None
        log = BatchLog(spec.checkpoint / "spark", source, one_each=snapshots, unlimited=spec.overload is not None)
        try:
            for number, files in log.batches():
                batches.run(number, workers.with_batch(files))
                batches.catch_up()
            batches.catch_up(all_deferred=True)
            if batches.repairs_idle:
                batches.reconcile(lambda: False)
        finally:
            batches.end()
