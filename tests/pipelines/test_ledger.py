"""The ledger: entries whole or not at all, refusal of foreign files, and the entries kept from the past."""

import json

import pytest

from semistream.errors import PipelineError, PipelineRunning
from semistream.pipelines import status
from semistream.pipelines.ledger import ledger as ledger_module
from semistream.pipelines.ledger.entries import BatchManifest, Plan, TaskResult, WaitingFile, WrittenFile
from semistream.pipelines.ledger.ledger import Ledger
from semistream.pipelines.status import METRICS, append_line, pipeline_state, recent_lines
from tests.relation.child_process import run_child, running_child

WAITING = WaitingFile("w.parquet", 2, 1, "w.parquet", since=12.5, version=3)
STALLED = WaitingFile("s.parquet", 1, 0, "s.parquet", since=12.5)


def plan(batch, source_batch, **changes):
    return Plan(batch, source_batch, {"r": 4}, at=1.5, **changes)


def work(rows=3):
    files = {"joined": [WrittenFile("a.parquet", rows, 99, {"p": None}, {"numRecords": rows})]}
    return TaskResult(rows, {"joined": rows}, files, [WAITING], [], 0, {"n": 1}, {"bytes": 7})


def finish(ledger, batch, source_batch):
    ledger.write_plan(plan(batch, source_batch))
    ledger.write_prepared(BatchManifest(batch, work(), [WAITING]))
    ledger.write_done(batch)


def test_entries_come_back_as_they_were(tmp_path):
    with Ledger.open(tmp_path, "p") as ledger:
        assert (ledger.last_plan, ledger.open_plan, ledger.last_done, ledger.waiting) == (None, None, None, [])
        first = plan(0, 7, taken=[WAITING], files=["x"], rejected=["y"], drains=False)
        ledger.write_plan(first)
        staged = TaskResult(3, {"joined": 2}, {}, [], [STALLED], 1)
        ledger.write_staged(0, 0, staged)
        manifest = BatchManifest(0, work(), [WAITING])
        ledger.write_prepared(manifest)
        assert (ledger.plan_of(7), ledger.open_plan, ledger.staged(0)) == (first, first, [staged])
        assert (ledger.prepared(0), ledger.waiting) == (manifest, [WAITING])
        ledger.write_done(0)
        assert (ledger.open_plan, ledger.last_done) == (None, 0)
        ledger.write_update("products", 4, {"seen": ["a"]})
        assert (ledger.update("products"), ledger.update("others")) == ((4, {"seen": ["a"]}), None)


def test_a_batch_of_the_source_is_found_among_others_and_one_of_long_ago_refused(tmp_path):
    with Ledger.open(tmp_path, "p") as ledger:
        for batch, source in enumerate([3, None, 4, None, None, 5]):
            finish(ledger, batch, source)
        assert [ledger.plan_of(source).batch for source in (3, 4, 5)] == [0, 2, 5]
        assert ledger.plan_of(6) is None
        with pytest.raises(PipelineError, match="batch 2 of the source comes again"):
            ledger.plan_of(2)


def test_needed_entries_of_many_batches_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr("semistream.storage.local_files.os.fsync", lambda _: None)
    with Ledger.open(tmp_path, "p") as ledger:
        for batch in range(130):
            finish(ledger, batch, batch)
        ledger.write_plan(plan(130, 130))
        assert ledger.open_plan.batch == 130
        assert ledger.waiting == [WAITING]
        assert ledger.plan_of(129).batch == 129
        assert ledger.plan_of(30).batch == 30
        with pytest.raises(PipelineError, match="batch 10 of the source comes again"):
            ledger.plan_of(10)
    kept = {path.name.split(".")[0] for path in (tmp_path / "batches").iterdir()}
    assert len(kept) == ledger_module._KEPT + 1


def test_outcomes_that_do_not_add_up_are_never_prepared():
    for wrong in (
        TaskResult(3, {"joined": 2}),
        TaskResult(3, {"joined": 3}, stalled_rows=1),
        TaskResult(3, {"joined": 2, "pending": 2}),
    ):
        with pytest.raises(PipelineError, match="bug in semistream"):
            BatchManifest(0, wrong, [])
    with pytest.raises(PipelineError, match="2 rows were stalled, but 1 went on"):
        TaskResult(3, {"joined": 1}, stalled_rows=2).followed_by(TaskResult(1, {"joined": 1}))


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b'{"batch": 1}', b"\xff\xfe", b'"x"', b"null"])
@pytest.mark.parametrize("stage", ["planned", "prepared", "staged-0"])
def test_a_damaged_entry_is_named(tmp_path, content, stage):
    with Ledger.open(tmp_path, "p") as ledger:
        (tmp_path / "batches" / f"000000000000.{stage}.json").write_bytes(content)
        read = {"planned": ledger.plan, "prepared": ledger.prepared, "staged-0": ledger.staged}[stage]
        with pytest.raises(PipelineError, match=rf"000000000000\.{stage}\.json is damaged"):
            read(0)


def test_damaged_updates_and_identities_are_named(tmp_path):
    with Ledger.open(tmp_path, "p") as ledger:
        (tmp_path / "updates" / "products.json").write_text('{"number": 1}')
        with pytest.raises(PipelineError, match=r"products\.json is damaged"):
            ledger.update("products")
    (tmp_path / "pipeline.json").write_text('{"name": "p", "format": 1}')
    with pytest.raises(PipelineError, match=r"pipeline\.json is damaged"):
        Ledger.read(tmp_path, "p")


def test_a_checkpoint_of_something_else_is_refused(tmp_path):
    with Ledger.open(tmp_path, "p") as ledger:
        token = ledger.token
        finish(ledger, 0, 0)
    with Ledger.open(tmp_path, "p") as ledger:
        assert ledger.token == token
    with pytest.raises(PipelineError, match="belongs to the pipeline 'p', not to 'q'"), Ledger.open(tmp_path, "q"):
        pass
    identity = json.loads((tmp_path / "pipeline.json").read_text())
    (tmp_path / "pipeline.json").write_text(json.dumps({**identity, "format": 0}))
    with pytest.raises(PipelineError, match="has format 0; this version reads 1"), Ledger.open(tmp_path, "p"):
        pass
    (tmp_path / "pipeline.json").unlink()
    with pytest.raises(PipelineError, match="has entries of an unknown pipeline"), Ledger.open(tmp_path, "p"):
        pass
    with pytest.raises(PipelineError, match="has not run"):
        Ledger.read(tmp_path / "none", "p")
    (tmp_path / "file").write_text("")
    with pytest.raises(PipelineError, match="cannot be created"), Ledger.open(tmp_path / "file" / "x", "p"):
        pass


def _hold(pipe, folder):
    with Ledger.open(folder, "p"):
        pipe.send("open")
        pipe.poll(None)


def _die_while_writing(folder):
    import os
    import signal
    from pathlib import Path

    def killed(self, target):
        os.kill(os.getpid(), signal.SIGKILL)

    with Ledger.open(folder, "p") as ledger:
        Path.replace = killed  # a rename is what makes an entry
        ledger.write_plan(plan(0, 0))


def test_two_processes_are_told_apart_and_one_may_look_on(tmp_path):
    with running_child(_hold, tmp_path):
        with pytest.raises(PipelineRunning, match="already runs in process"), Ledger.open(tmp_path, "p"):
            pass
        assert Ledger.read(tmp_path, "p").last_plan is None
    with Ledger.open(tmp_path, "p"):
        pass


def test_a_half_written_entry_does_not_exist(tmp_path):
    code, _ = run_child(_die_while_writing, tmp_path)
    assert code == -9
    assert len(list((tmp_path / "batches").iterdir())) == 1
    with Ledger.open(tmp_path, "p") as ledger:
        assert ledger.last_plan is None
        assert list((tmp_path / "batches").iterdir()) == []


def test_the_state_of_a_pipeline_from_its_checkpoint(tmp_path):
    with Ledger.open(tmp_path, "p") as ledger:
        finish(ledger, 0, 0)
        ledger.write_plan(plan(1, 1))
        assert pipeline_state(tmp_path, "p").stage == "planned"
        ledger.write_staged(1, 0, TaskResult(3, {"joined": 2}, {}, [], [STALLED], 1))
        assert pipeline_state(tmp_path, "p").stage == "in phase 2"
        ledger.write_prepared(BatchManifest(1, work(), [WAITING]))
        state = pipeline_state(tmp_path, "p")
        assert (state.last_batch, state.unfinished, state.stage) == (0, 1, "written, not committed")
        assert (state.waiting_rows, state.waiting_since, state.recent) == (2, 12.5, [])


def test_only_whole_lines_of_metrics_are_told(tmp_path):
    lines = [json.dumps({"batch": i, "pad": "x" * 9000}) for i in range(20)]
    (tmp_path / METRICS).write_text("\n".join(lines) + '\n{"batch": 20, "pa')
    assert [line["batch"] for line in recent_lines(tmp_path / METRICS)] == [16, 17, 18, 19]
    (tmp_path / METRICS).write_text(json.dumps({"batch": 0, "pad": "x" * 70000}) + "\n")
    assert recent_lines(tmp_path / METRICS) == []


def test_metrics_do_not_grow_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(status, "MOST_BYTES", 1000)
    for batch in range(200):
        append_line(tmp_path / METRICS, json.dumps({"batch": batch}))
        assert recent_lines(tmp_path / METRICS)[-1] == {"batch": batch}
        assert len(recent_lines(tmp_path / METRICS)) == min(batch + 1, 5), "those before are in the file kept beside it"
    assert sorted(path.name for path in tmp_path.iterdir()) == [METRICS, f"{METRICS}.old"]
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 2100


def test_lines_of_metrics_that_are_not_ours_are_passed_over(tmp_path):
    hostile = ["5", "null", "[]", "[" * 50_000, '"x"', '{"batch": "x"}', '{"batch": 1, "overload": {}}', "9" * 5000]
    hostile += [
        '{"batch": 1, "overload": 5}',
        '{"batch": 1, "seconds": null}',
        '{"batch": 1, "overload": {"p50_s": "x"}}',
    ]
    ours = {"batch": 7, "rows_in": 3, "overload": {"p50_s": None, "p95_s": 1.5, "p99_s": 2, "goal_s": 30}}
    for line in hostile:
        (tmp_path / METRICS).write_text(f"{json.dumps(ours)}\n{line}\n")
        assert recent_lines(tmp_path / METRICS) == [ours]
