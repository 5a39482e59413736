"""Power cuts at any point of a scenario, and planted bugs that they must find. `make crash` tries many more."""

from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from semistream.pipelines.batch.committer import BatchCommitter
from semistream.pipelines.tables import parquet, writer
from semistream.pipelines.tables.delta_log import DeltaLog
from semistream.relation.write import page_writer, version_draft
from semistream.storage import local_files
from tests.crash.cuts import check, cuts, drawn_cuts, find, record
from tests.crash.overload_pipeline import DeltaOverload, ParquetOverload
from tests.crash.relation_scenario import RelationScenario
from tests.crash.scenarios import SCENARIOS

STATES = {
    "relation": 30,
    "orders-delta": 4,
    "orders-parquet": 4,
    "overload-delta": 4,
    "overload-parquet": 4,
    "snapshots": 4,
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_all_that_was_told_holds_after_a_power_cut(name) -> None:
    scenario = SCENARIOS[name]()
    for cut in drawn_cuts(scenario, seed=1, states=STATES[name]):
        failure = check(scenario, cut, seed=1)
        assert failure is None, failure


def not_synced(path) -> None:
    """Sync nothing."""


@contextmanager
def written_in_place(path):
    with Path(path).open("wb") as file:
        yield file
    local_files.sync_folder(path.parent)


@contextmanager
def renamed_unsynced(path):
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("wb") as file:
        yield file
    temporary.replace(path)
    local_files.sync_folder(path.parent)


def published_first(monkeypatch):
    """Plant: CURRENT names a version before its manifest is there."""
    publish, write, held = version_draft.set_current, version_draft.write_manifest, []

    def first(folder, manifest):
        publish(folder, manifest.version)
        held.append(manifest)

    monkeypatch.setattr(version_draft, "write_manifest", first)
    monkeypatch.setattr(version_draft, "set_current", lambda folder, _: write(folder, held.pop()))


def replaced(module, name, wrong):
    return lambda monkeypatch: monkeypatch.setattr(module, name, wrong)


PLANTED = {
    "pages not synced": replaced(page_writer, "sync_file", not_synced),
    "page table not synced": replaced(version_draft, "sync_file", not_synced),
    "folder of pages not synced": replaced(version_draft, "sync_folder", not_synced),
    "folder of entries not synced": replaced(local_files, "sync_folder", not_synced),
    "entries written in place": replaced(local_files, "whole_file", written_in_place),
    "entries renamed before they are synced": replaced(local_files, "whole_file", renamed_unsynced),
    "version published before its manifest": published_first,
}


def done_first(monkeypatch):
    """Plant: a batch is called done before its tables show it."""
    commit = BatchCommitter.commit

    def wrong(self, plan, manifest, *, resumed):
        self._ledger.write_done(plan.batch)
        commit(self, plan, manifest, resumed=resumed)

    monkeypatch.setattr(BatchCommitter, "commit", wrong)


PLANTED_IN_PIPELINES = {
    "log of a Delta table not synced": (DeltaOverload, replaced(DeltaLog, "sync", lambda log, version: None)),
    "folder of a Parquet table not synced": (ParquetOverload, replaced(parquet, "sync_folder", not_synced)),
    "files of a table not synced": (ParquetOverload, replaced(writer, "sync_file", not_synced)),
    "folders of staged files not synced": (ParquetOverload, replaced(writer, "sync_folder", not_synced)),
    "done before the commit": (ParquetOverload, done_first),
}


def first_failure(scenario, seed=1):
    events = record(scenario.run, scenario.disk, scenario.name)
    found = list(cuts(scenario.name, events, scenario.disk, [], seed))
    Random(seed).shuffle(found)
    return next(filter(None, (check(scenario, cut, seed) for cut in found)), None)


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found(bug, monkeypatch) -> None:
    PLANTED[bug](monkeypatch)
    assert first_failure(RelationScenario()) is not None


@pytest.mark.parametrize("bug", PLANTED_IN_PIPELINES)
def test_a_bug_planted_in_a_pipeline_is_found(bug, monkeypatch) -> None:
    scenario, plant = PLANTED_IN_PIPELINES[bug]
    plant(monkeypatch)
    made = scenario()
    assert any(check(made, cut, seed=1) for cut in drawn_cuts(made, seed=1, states=120))


def test_a_failure_is_found_again_by_its_name(monkeypatch) -> None:
    scenario = RelationScenario()
    wanted = list(drawn_cuts(scenario, seed=3, states=40))[-1]  # after a recovery
    assert wanted.name.count("@") == 2
    found = find(scenario, wanted.name, seed=3)
    assert (found.state.said, found.told) == (wanted.state.said, wanted.told)
    assert set(found.state.tree) == set(wanted.state.tree)
    monkeypatch.setattr(scenario, "steps", [(name, step, {}) for name, step, _ in scenario.steps])
    failure = check(scenario, found, seed=3)
    assert failure is not None
    assert f"{wanted.name} (seed 3), after {wanted.after}" in str(failure)
