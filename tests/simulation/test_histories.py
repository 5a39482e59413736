"""Simulated histories: what must hold after each, that they can be repeated, and that they find planted bugs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from semistream.pipelines.batch.batch_report import BatchReport
from semistream.pipelines.batch.committer import BatchCommitter
from semistream.pipelines.ledger.entries import BatchManifest, Plan
from semistream.pipelines.ledger.ledger import Ledger
from semistream.relation import Relation
from tests.simulation.history import History, error_of, shortest
from tests.simulation.local_driver import drive
from tests.simulation.scenarios import SimulatedOrders
from tests.simulation.world import Kill, World

Plant = Callable[[pytest.MonkeyPatch], None]


@pytest.mark.parametrize("seed", range(10))
def test_after_any_history_all_tables_are_as_they_must_be(tmp_path: Path, seed: int) -> None:
    History.draw(seed).run(tmp_path / "history")


def test_a_history_is_the_same_each_time(tmp_path: Path) -> None:
    history = History.draw(1)
    assert history.run(tmp_path / "history") == history.run(tmp_path / "history")


def test_batches_go_on_in_a_storm_of_updates(tmp_path: Path) -> None:
    world, reports = World(tmp_path, seed=1), list[BatchReport]()
    orders = SimulatedOrders(world.folder, seed=1)
    world.while_reading_updates = orders.put_update  # whenever updates are read, there is another one
    for _ in range(3):
        orders.put_orders()
    orders.put_update()
    with world.simulated():
        world.run("driver", None, lambda: drive(world, orders.spec(), watch=reports.append))
    assert [report.source_batch for report in reports if report.source_batch is not None] == [0, 1, 2]
    assert orders.waiting_files == 0


def _done_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    commit = BatchCommitter.commit

    def swapped(self: BatchCommitter, plan: Plan, manifest: BatchManifest, **named: Any) -> None:
        self._ledger.write_done(plan.batch)
        commit(self, plan, manifest, **named)

    patch.setattr(BatchCommitter, "commit", swapped)


def _no_fence_for_updates(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Relation, "made_by", lambda *_: None)


def _planned_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Ledger, "plan_of", lambda *_: None)


def _prepared_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Ledger, "prepared", lambda *_: None)


@pytest.mark.parametrize(
    ("plant", "seed"),
    [(_done_before_the_commit, 10), (_no_fence_for_updates, 44), (_planned_again, 13), (_prepared_again, 0)],
)
def test_planted_bugs_are_found(tmp_path: Path, plant: Plant, seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        assert any(error_of(History.draw(each), tmp_path) for each in range(seed, seed + 40))


def test_a_failing_history_becomes_as_short_as_it_can(tmp_path: Path) -> None:
    history = next(drawn for drawn in map(History.draw, range(100)) if len(drawn.events) == 11)
    wanted = {history.events[2], history.events[7]}
    kept = shortest(history, lambda fewer: wanted <= set(fewer.events))
    assert kept == [2, 7]


def test_what_a_killed_process_goes_on_to_do_has_no_effect(tmp_path: Path) -> None:
    world = World(tmp_path, seed=1)
    file = world.folder / "file"

    def work() -> None:
        file.write_text("before")
        try:
            file.rename(world.folder / "renamed")
        finally:
            (world.folder / "left").mkdir(parents=True)  # a dead process does nothing

    with world.simulated():
        assert not world.run("driver", Kill("driver", 0), work)
    assert [path.name for path in world.folder.iterdir()] == ["file"]
    assert file.read_text() == "before"
