"""Whole files of the source are shed: archived unchanged and unread, and repaired row by row."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.errors import PipelineError
from semistream.pipelines.inputs.parquet_files import parquet_inputs
from semistream.pipelines.inputs.shed_archive import ArchiveSplit
from semistream.pipelines.inputs.splits import share_among_owners
from semistream.pipelines.ledger.entries import ArchivedFile, TaskResult
from semistream.pipelines.overload.task_shedding import TaskShedding, summarize_inputs
from semistream.pipelines.spec.row_rules import RowRule
from semistream.pipelines.task.routed_keys import RoutedKeys
from semistream.shedding import KeepW, batch_seed
from tests.pipelines.broken_files import break_pages
from tests.pipelines.overload.test_overload_rows import AT, GOAL_S, ends, inputs_of, rows_of, run, valued
from tests.pipelines.steps.chain_model import SOURCE, build_relations
from tests.pipelines.test_batch_task import read


@pytest.fixture(scope="module")
def relations(tmp_path_factory):
    return build_relations(tmp_path_factory.mktemp("relations"))


def shedding_of(relations, splits, w, **values):
    """Return the shedding of splits of which as few as possible are read."""
    bare = TaskShedding("p", GOAL_S, AT, SOURCE)
    strategy = KeepW(whole_parts=True)
    decision = strategy.decide(summarize_inputs(bare, strategy, splits, 0), w, batch_seed("p", 7))
    return replace(bare, decision=decision.to_json(), valued=valued(relations, **{"unique": True, **values}))


def splits_of(folder, files):
    return [replace(split, is_file=True) for split in inputs_of(folder, files, [])[:-2]]


def repair(folder, relations, works, most_rows, rules=(), routed=None):
    """Repair all shed rows in pieces of ``most_rows``: a batch for each piece, or for each owner of a part of R."""
    written = [file for work in works for file in work.files["shed"]]
    pieces = [piece for file in written for piece in ArchivedFile.of(file.path, file, 7, most_rows)]
    bare = TaskShedding("p", GOAL_S, AT, SOURCE)
    splits = [ArchiveSplit(str(folder / "shed"), (piece,)) for piece in pieces]
    parts = [(None, None)] if routed is None else [(owner, routed) for owner in range(routed.num_parts)]
    return [
        run(folder, relations, bare, [replace(split, owner=owner)], batch=8 + i, rules=rules, routed=keys)
        for i, split in enumerate(splits)
        for owner, keys in parts
    ]


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(
    files=st.lists(rows_of, min_size=1, max_size=4),
    w=st.integers(0, 30),
    most_rows=st.integers(1, 5),
    cuts=st.one_of(st.none(), st.lists(st.integers(-1, 5), max_size=2, unique=True).map(sorted)),
)
def test_files_that_are_shed_are_copied_and_a_repair_makes_the_tables_whole(
    tmp_path_factory, relations, files, w, most_rows, cuts
):
    folder = tmp_path_factory.mktemp("task")
    splits = splits_of(folder, files)
    rules = [RowRule("b", most=7)]
    whole = run(folder / "whole", relations, TaskShedding("p", GOAL_S, AT, SOURCE), splits, rules=rules)
    shedding = shedding_of(relations, splits, w)
    routed = None if cuts is None else RoutedKeys(("a",), ("id",), (pa.int64(),), tuple(cuts))
    shared = [splits] if routed is None else share_among_owners(splits, routed.num_parts)
    works = [
        run(folder / "shed", relations, shedding, part, rules=rules, routed=routed, takes_copies=True)
        for part in shared
    ]
    total, rows = TaskResult.total(works), sum(map(len, files))
    assert total.rows_in == sum(total.outcomes.values()) == rows
    copies = [file for file in total.files["shed"] if file.part is not None]
    assert {file.part for file in copies} == {
        split.part for split in splits if split.rows and shedding.sheds_all(split)
    }
    for file in copies:
        assert (folder / "shed" / "shed" / file.path).read_bytes() == Path(splits[file.part].path).read_bytes()
        assert (file.came_ms, file.rows) == (990_000 + file.part, len(files[file.part]))
        assert file.partition == {"shed_by": "p", "batch_id": "7"}
    read_rows = sum(len(files[split.part]) for split in splits if not shedding.sheds_all(split))
    assert read_rows - min(w, rows) < max(1, *map(len, files)), "more than one file was read for a part of its rows"
    assert total.counts.get("missing_high", 0) == total.outcomes["shed"]
    repaired = repair(folder / "shed", relations, works, most_rows, rules, routed)
    assert sum(each.rows_in for each in repaired) == total.outcomes["shed"]
    assert ends(folder / "shed", [*works, *repaired]) == ends(folder / "whole", [whole])
    invalid = [Counter(row["raw"] for row in read(at, "invalid", each))
               for at, each in ((folder / "shed", [*works, *repaired]), (folder / "whole", [whole]))]  # fmt: skip
    assert invalid[0] == invalid[1]


@pytest.mark.parametrize(
    ("changes", "takes_copies", "values"),
    [
        ({"is_file": False}, True, {}),  # a part of a file, or of other types
        ({}, False, {}),  # a table that has all columns in every file
        ({}, True, {"unique": False}),  # rows tell how many results are missing
    ],
)
def test_what_cannot_be_copied_is_read(tmp_path, relations, changes, takes_copies, values):
    (split,) = splits_of(tmp_path, [[(0, 1), (2, 3)]])
    split = replace(split, **changes)
    work = run(
        tmp_path / "t", relations, shedding_of(relations, [split], 0, **values), [split], takes_copies=takes_copies
    )
    assert [(file.part, file.rows) for file in work.files["shed"]] == [(None, 2)]
    assert sorted(row["row_id"] for row in read(tmp_path / "t", "shed", [work])) == [0, 1]


def test_a_split_is_a_file_if_it_is_all_of_it_in_the_source_s_types(tmp_path):
    table = pa.table({"a": pa.array(range(8), pa.int64()), "b": pa.array(range(8), pa.int64())})
    pq.write_table(table, tmp_path / "whole.parquet", row_group_size=4)
    pq.write_table(table.set_column(1, "b", table["b"].cast(pa.int32())), tmp_path / "narrow.parquet")
    paths = [str(tmp_path / name) for name in ("whole.parquet", "narrow.parquet")]
    found = parquet_inputs(paths * 2, SOURCE, 1, stop=False).splits
    assert [(Path(split.path).name, split.rows, split.is_file) for split in found] == [
        ("whole.parquet", 8, True),
        ("narrow.parquet", 8, False),
    ] * 2
    in_parts = parquet_inputs(paths[:1], SOURCE, 2, stop=False).splits
    assert [(split.rows, split.is_file) for split in in_parts] == [(4, False), (4, False)]


def test_rows_of_a_copy_in_the_middle_of_row_groups(tmp_path):
    pq.write_table(
        pa.table({"a": pa.array(range(100), pa.int64()), "b": pa.array(range(100), pa.int64())}),
        tmp_path / "s.parquet",
        row_group_size=7,
    )
    for begin, rows in [(0, 3), (5, 9), (20, 1), (95, 5), (0, 100)]:
        split = ArchiveSplit(str(tmp_path), (ArchivedFile("s.parquet", rows, 3, part=2, came_ms=17, begin=begin),))
        found = [
            (a, came, number - (2 << 40))
            for batch, came_ms, ids in split.read(SOURCE)
            for a, came, number in zip(batch.column("a").to_pylist(), came_ms, ids, strict=True)
        ]
        assert found == [(row, 17, row) for row in range(begin, begin + rows)]


def test_a_copy_whose_content_turns_out_to_be_broken_goes_to_the_quarantine(tmp_path, relations):
    path = tmp_path / "0.parquet"
    pq.write_table(pa.table({"a": [0] * 40_000, "b": range(40_000)}), path, compression="snappy", use_dictionary=False)
    break_pages(path, group=0, column=0)
    (split,) = parquet_inputs([str(path)], SOURCE, 1, stop=False).splits
    split = replace(split, part=0, came_ms=1)
    work = run(tmp_path / "t", relations, shedding_of(relations, [split], 0), [split], takes_copies=True)
    assert work.outcomes["shed"] == 40_000
    (repaired,) = repair(tmp_path / "t", relations, [work], 40_000)
    assert (repaired.rows_in, repaired.outcomes["invalid"]) == (1, 1)
    (row,) = read(tmp_path / "t", "invalid", [repaired])
    assert "cannot be read" in row["reason"]
    assert ".parquet" in row["raw"]


def test_all_tasks_that_own_a_part_of_r_read_what_is_repaired():
    splits = [ArchiveSplit("archive", (ArchivedFile(name, 5, 3),)) for name in ("a", "b")]
    shared = share_among_owners(splits, 2)
    assert [[(split.files[0].path, split.owner) for split in part] for part in shared] == [
        [("a", owner), ("b", owner)] for owner in (0, 1)
    ]


def test_a_copy_that_cannot_be_made_stops_the_batch_and_leaves_nothing(tmp_path, relations):
    (split,) = splits_of(tmp_path, [[(0, 1)]])
    shedding = shedding_of(relations, [split], 0)
    Path(split.path).unlink()
    with pytest.raises(PipelineError, match=r"0\.parquet, a file of the source, cannot be read: No such file"):
        run(tmp_path / "t", relations, shedding, [split], takes_copies=True)
    assert list((tmp_path / "t").rglob("*.parquet")) == []
    (tmp_path / "u").mkdir()
    (tmp_path / "u" / "shed").write_text("in the way")
    (split,) = splits_of(tmp_path, [[(0, 1)]])
    with pytest.raises(PipelineError, match=r"cannot be written.*Nothing of the batch was committed"):
        run(tmp_path / "u", relations, shedding, [split], takes_copies=True)
