"""A relation in column groups holds the same rows as one without, and reads only the requested groups."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.errors import ColumnNotFound, CorruptRelation, InvalidArgument
from semistream.relation import BufferedDisk, PageSlots, Relation, optimal_plan
from semistream.relation.format.column_groups import choose_groups
from semistream.relation.write.page_writer import PageWriter
from tests.joins.cases import column_groups
from tests.relation.child_process import die_at, run_child
from tests.relation.row_sets import files_under, row_set, scratch_folder

COLUMNS = ["a", "b", "c", "d", "e"]


def sample(rows: int, first: int = 0, *, string_keys: bool = False, nulls: bool = False) -> pa.Table:
    numbers = range(first, first + rows)
    keys: list[Any] = [f"key {i % 97}" if string_keys else i % 97 for i in numbers]
    if nulls:
        keys[::7] = [None] * len(keys[::7])
    return pa.table(
        {
            "a": pa.array([None if i % 5 == 0 else i for i in numbers], pa.int32()),
            "k": pa.array(keys, pa.string() if string_keys else pa.int64()),
            "b": pa.array(["x" * (i % 40) for i in numbers], pa.string()),
            "c": pa.array([[i] * (i % 3) for i in numbers], pa.list_(pa.int16())),
            "d": pa.array([i % 3 == 0 for i in numbers], pa.bool_()),
            "e": pa.array([i / 7 for i in numbers], pa.float64()),
        }
    )


@settings(deadline=None, max_examples=15)
@given(
    groups=column_groups(COLUMNS),
    names=st.lists(st.sampled_from(["k", *COLUMNS]), unique=True),
    rows=st.integers(0, 400),
    page_bytes=st.sampled_from([512, 3000, 65536]),
    string_keys=st.booleans(),
    nulls=st.booleans(),
)
def test_groups_change_nothing_but_what_is_read(
    groups: tuple[tuple[str, ...], ...],
    names: list[str],
    rows: int,
    page_bytes: int,
    string_keys: bool,
    nulls: bool,
) -> None:
    table = sample(rows, string_keys=string_keys, nulls=nulls)
    with scratch_folder() as folder:
        options: dict[str, Any] = {"key": "k", "page_bytes": page_bytes}
        plain = Relation.build(table, folder / "plain", **options)
        grouped = Relation.build(table, folder / "grouped", column_groups=groups, **options)
        assert grouped.segments == len(groups) + 1
        upserts, deletes = sample(30, 1000, string_keys=string_keys), table["k"].drop_null().slice(0, 9)
        for _ in range(2):
            assert grouped.verify().rows == plain.verify().rows
            assert grouped.schema == plain.schema
            assert row_set(grouped.scan()) == row_set(plain.scan())
            assert row_set(grouped.scan(names)) == row_set(plain.scan(names))
            wanted = table["k"].drop_null().slice(0, 20)
            assert row_set(grouped.lookup(wanted, names)) == row_set(plain.lookup(wanted, names))
            assert row_set(grouped.reading(names).scan()) == row_set(plain.scan())  # a narrowed relation can be widened
            plain, grouped = plain.update(upserts, deletes), grouped.update(upserts, deletes)


def wide(rows: int = 3000, columns: int = 49) -> pa.Table:
    return pa.table({"k": np.arange(rows), **{f"c{i}": np.arange(rows) + i for i in range(columns)}})


@pytest.fixture(scope="module")
def wide_relation(tmp_path_factory: pytest.TempPathFactory) -> Relation:
    return Relation.build(wide(), tmp_path_factory.mktemp("wide") / "r", key="k", page_bytes=65536)


def test_three_of_fifty_columns_take_little_more_than_their_bytes(wide_relation: Relation) -> None:
    rows = wide_relation.num_rows
    assert wide_relation.reading(["c0", "c1"]).nbytes <= 1.2 * 24 * rows
    for first in range(46):
        together = [f"c{first + i}" for i in range(3)]
        assert wide_relation.reading(together).nbytes <= 1.4 * 32 * rows
    assert wide_relation.nbytes <= 1.1 * 400 * rows


def test_only_the_groups_of_the_columns_are_read_one_request_each(wide_relation: Relation) -> None:
    for columns, groups in ((["k"], 1), ([], 1), (["c0", "c1"], 2), (["c1", "c2", "c48"], 4), (["c4"], 2)):
        narrowed = wide_relation.reading(columns)
        assert narrowed.segments == groups
        disk = BufferedDisk()
        assert wide_relation.scan(columns, disk=disk).read_all().num_rows == wide_relation.num_rows
        counts = disk.counts
        assert (counts.requests, counts.bytes) == (groups, narrowed.nbytes)
        assert (counts.seeks, counts.pages) == (groups, groups * narrowed.num_pages)
        assert narrowed.nbytes == sum(int(segment.nbytes.sum()) for segment in narrowed.table.segments)
    assert wide_relation.reading(wide_relation.schema.names) is wide_relation
    assert (
        wide_relation.reading(["c0"]) is wide_relation.reading(["c1"]) is wide_relation.reading(["c1"]).reading(["c0"])
    )


def test_a_part_can_be_narrowed_and_widened(wide_relation: Relation) -> None:
    part = wide_relation.part(1000, 2000)
    assert 0 < part.num_pages < wide_relation.num_pages
    narrowed = part.reading(["c3"])
    assert narrowed.first_page == part.first_page > 0
    assert narrowed.scan().read_all() == part.scan().read_all()
    assert (
        narrowed.part(1500, 1600).reading(["c7"]).lookup([1555]).to_pylist() == wide_relation.lookup([1555]).to_pylist()
    )


def test_a_plan_of_segments_costs_what_the_disk_counts(wide_relation: Relation) -> None:
    narrowed = wide_relation.reading(["c0", "c40"])
    disk = BufferedDisk()
    reader = narrowed.reader(run_bytes=40_000, disk=disk)
    wanted = np.array([0, 1, 5, 9])
    plan = optimal_plan(PageSlots.of(narrowed.table), wanted, reader.costs, most_bytes=40_000)
    found = [int(code) for run in reader.read_all(plan) for code in run.words[run.code_starts]]
    reader.close()
    assert found == narrowed.table.first_code[wanted].tolist()
    assert disk.counts.requests == 3 * len(plan)
    assert disk.counts.bytes == plan.span_bytes.sum()
    assert disk.counts.pages == 3 * plan.span_pages.sum()
    assert reader.costs.seek_s == 3 * disk.costs.seek_s


def test_every_data_file_is_an_arrow_file_of_its_groups_columns(wide_relation: Relation) -> None:
    read: dict[str, pa.ChunkedArray] = {}
    for path in wide_relation.data_files:
        file = pa.ipc.open_file(path)
        assert file.num_record_batches == wide_relation.num_pages
        table = file.read_all()
        read |= zip(table.column_names, table.columns, strict=True)
    assert pa.table({name: read[name] for name in wide_relation.schema.names}) == wide()


def test_narrow_rows_are_written_as_ever(tmp_path: Path) -> None:
    relation = Relation.build(wide(500, columns=31), tmp_path / "r", key="k")  # 256 bytes
    record = json.loads((relation.path / "versions/000001.json").read_text())
    assert record["format"] == 1
    assert "column_groups" not in record["manifest"]
    assert len(relation.manifest.files) == 1
    table = pa.ipc.open_file(relation.path / relation.manifest.page_table.name).read_all()
    assert table.column_names == ["file", "offset", "nbytes", "rows", "first_code", "last_code", "checksum"]
    assert relation.reading(["c0"]) is relation
    assert json.loads((relation.update(deletes=[3]).path / "versions/000002.json").read_text())["format"] == 1


def test_wide_rows_lie_in_groups_of_neighbours() -> None:
    assert choose_groups(wide(1, columns=31).schema, ("k",)) == ()
    groups = choose_groups(wide(1, columns=32).schema, ("k",))
    assert groups == (("k",), *((f"c{i}", f"c{i + 1}") for i in range(0, 32, 2)))
    mixed = pa.schema(
        [("x", pa.string()), *((f"b{i}", pa.bool_()) for i in range(20)), ("k", pa.int64()), ("y", pa.binary(240))]
    )
    assert choose_groups(mixed, ("k",)) == (
        ("k",),
        ("x",),
        tuple(f"b{i}" for i in range(16)),
        tuple(f"b{i}" for i in range(16, 20)),
        ("y",),
    )


def test_columns_lie_together_as_asked_for() -> None:
    schema = wide(1, columns=4).schema
    assert choose_groups(schema, ("k",), [["c3", "c1"]]) == (("k", "c0", "c2"), ("c1", "c3"))
    assert choose_groups(schema, ("k",), [["c3"], ["k", "c1"], ["c0"]]) == (("k", "c1", "c2"), ("c0",), ("c3",))
    assert choose_groups(wide(1).schema, ("k",), [wide(1).column_names]) == ()
    groups = choose_groups(wide(1).schema, ("k",), [["c7", "c48"]])
    assert groups[0] == ("k",)
    assert ("c7", "c48") in groups
    assert sorted(name for group in groups for name in group) == sorted(wide(1).column_names)


@pytest.mark.parametrize(
    ("groups", "error", "message"),
    [
        ([["c0", "c50"]], ColumnNotFound, r"no column 'c50'.*Did you mean 'c"),
        ([["c0"], ["c1", "c0"]], InvalidArgument, "name c0 twice"),
        ([["c0", "c0"]], InvalidArgument, "c0, c0.*each once"),
        ([[]], InvalidArgument, "one or more columns"),
        (["c0", "c1"], InvalidArgument, r"give lists of columns, such as \[\['c0'"),
    ],
)
def test_wrong_groups_are_refused(tmp_path: Path, groups: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Relation.build(wide(10), tmp_path / "r", key="k", column_groups=groups)
    assert not (tmp_path / "r").exists()


def test_a_damaged_segment_is_named_and_other_columns_can_be_read(tmp_path: Path) -> None:
    relation = Relation.build(sample(400), tmp_path / "r", key="k", page_bytes=2048, column_groups=[["b", "e"], ["c"]])
    path = relation.reading(["b"]).data_files[1]
    segments = relation.reading(["b"]).table.segments[1]
    offset = int(segments.offset[3])
    content = bytearray(path.read_bytes())
    content[offset + int(segments.nbytes[3]) - 9] ^= 1
    path.write_bytes(content)
    key = int(relation.table.first_code[3])
    damaged = rf"page 3 \({path}, bytes {offset} to .* does not match its checksum"
    for read in (relation.verify, relation.scan(["e"]).read_all, lambda: relation.lookup([key], ["b"])):
        with pytest.raises(CorruptRelation, match=damaged):
            read()
    assert row_set(relation.scan(["c", "k"])) == row_set(sample(400).select(["c", "k"]))
    path.unlink()
    with pytest.raises(CorruptRelation, match=f"{path.name} is missing"):
        relation.verify()


def test_an_update_shares_the_pages_it_leaves_alone_in_all_groups(tmp_path: Path) -> None:
    first = Relation.build(wide(4000), tmp_path / "r", key="k", page_bytes=16384)
    second = first.update(deletes=[5, 3000])
    kept = second.pages_kept_from(first)
    assert np.count_nonzero(kept < 0) == 2
    assert second.reading(["c9"]).pages_kept_from(first.reading(["c9"])).tolist() == kept.tolist()
    assert len(second.manifest.files) == 2 * len(first.manifest.files)
    assert second.verify().rows == 3998
    third = second.update(upserts=wide(4000))
    assert third.scan().read_all() == wide(4000)
    assert third.vacuum() != []
    assert files_under(third.path / "data") == {Path(file.name).name for file in third.manifest.files}
    assert third.verify().rows == 4000


def test_an_update_that_fails_leaves_no_file_of_any_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    relation = Relation.build(wide(1000), tmp_path / "r", key="k")
    before = files_under(tmp_path)

    def failing(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(PageWriter, "close", failing)
    with pytest.raises(OSError, match="No space left"):
        relation.update(deletes=[7])
    assert files_under(tmp_path) == before


def _update(path: Path, *point: Any) -> None:
    relation = Relation.open(path)
    die_at(*point)
    relation.update(deletes=[7])


@pytest.mark.slow
@pytest.mark.parametrize("nth", [1, 2, 7])
def test_an_update_killed_between_groups_changes_nothing(nth: int) -> None:
    with scratch_folder() as folder:
        Relation.build(wide(1000), folder / "r", key="k")
        seal = "semistream.relation.write.page_writer:_seal"
        assert run_child(_update, folder / "r", seal, "before", nth)[0] == -9
        relation = Relation.open(folder / "r")
        assert (relation.version, relation.verify().rows) == (1, 1000)
        assert len(relation.vacuum()) == relation.segments
        assert relation.update(deletes=[7]).verify().rows == 999
