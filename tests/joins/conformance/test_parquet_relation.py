"""ParquetRelation: MESHJOIN over plain Parquet gives DuckDB's join, in bounded memory, and leaves nothing open."""

from __future__ import annotations

import shlex
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream import (
    AdaptiveMeshJoin,
    EngineJoin,
    HybridJoin,
    IndexNestedLoopJoin,
    MeshJoin,
    ParquetRelation,
    Relation,
    SemiStreamingIndexJoin,
)
from semistream.errors import BudgetError, InvalidArgument, RelationError
from semistream.joins.sweep.operator import SweepJoin
from semistream.relation import SimulatedDisk
from semistream.relation.parquet import reader as parquet_reader
from tests.cli.conftest import run as run_command
from tests.joins.cases import MEMORY_BACKED, Case, cases
from tests.joins.conformance.checks import run
from tests.joins.conformance.parquet_files import MEMORY, every_scan, joined, orders, products, write
from tests.oracle import batch_join, multiset, sql_join


@st.composite
def laid_out(draw: st.DrawFn, case: Case, folder: Path) -> ParquetRelation:
    """The rows of a case in some files, with row groups, encodings and column orders of any kind."""
    cuts = sorted(draw(st.lists(st.integers(0, case.relation.num_rows), max_size=2)))
    for i, (begin, end) in enumerate(zip([0, *cuts], [*cuts, case.relation.num_rows], strict=True)):
        names = draw(st.permutations(case.relation.column_names)) if i else case.relation.column_names
        piece = case.relation.slice(begin, end - begin).select(names)
        for at, field in enumerate(piece.schema):
            if pa.types.is_string(field.type) and draw(st.booleans()):
                piece = piece.set_column(at, field.name, piece.column(at).dictionary_encode())
        write(
            piece,
            folder / f"{i}.parquet",
            row_group_size=draw(st.sampled_from([3, 40, 1000])),
            use_dictionary=draw(st.booleans()),
            compression=draw(st.sampled_from(["none", "snappy", "zstd"])),
            data_page_version=draw(st.sampled_from(["1.0", "2.0"])),
            store_schema=True,
        )
    return ParquetRelation.open(folder, page_bytes=draw(st.sampled_from([4096, 8192, 256 << 10])))


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(cases(), st.data())
def test_results_are_those_of_duckdb(case: Case, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY_BACKED) as folder:
        relation = data.draw(laid_out(case, Path(folder)))
        expected = batch_join(case.stream, case.relation, case.on, case.how, case.payload)
        for kind in (MeshJoin, AdaptiveMeshJoin):
            with kind(relation, case.stream_schema, on=case.on, how=case.how, memory=MEMORY) as operator:
                results = run(operator, case.batches)
                assert operator.stats.rows_in == operator.stats.rows_done == case.stream.num_rows
            assert results.column_names == expected.column_names
            assert multiset(results) == multiset(expected)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(cases(), st.data())
def test_results_are_those_of_duckdb_however_b_and_w_change(case: Case, data: st.DataObject) -> None:
    changes = st.lists(st.tuples(st.integers(1, 40), st.sampled_from([1, 7, 10**9]), st.booleans()), max_size=3)
    with tempfile.TemporaryDirectory(dir=MEMORY_BACKED) as folder:
        relation = data.draw(laid_out(case, Path(folder)))
        results = []
        with AdaptiveMeshJoin(relation, case.stream_schema, on=case.on, how=case.how, memory=MEMORY) as operator:
            for batch in case.batches:
                for pages, rows, retune in data.draw(changes):
                    operator.set_parameters(pages_per_step=pages, rows_per_step=rows, retune=retune)
                    results += operator.step()
                results += operator.push(batch)
            results += operator.flush()
            assert operator._scan.asked == operator._scan.position
        expected = batch_join(case.stream, case.relation, case.on, case.how, case.payload)
        assert multiset(pa.Table.from_batches(results, operator.schema)) == multiset(expected)


@every_scan
@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
def test_tuples_that_enter_anywhere_in_a_scan_meet_every_row_once(
    tmp_path: Path, how: str, kind: type[MeshJoin]
) -> None:
    table, stream = products(), orders()
    relation = ParquetRelation.open(write(table, tmp_path / "r.parquet", row_group_size=700), page_bytes=4096)
    assert relation.num_pages >= 50
    results: list[pa.RecordBatch] = []
    places: set[int] = set()
    with kind(relation, stream.schema, on={"product": "id"}, how=how, memory=MEMORY, rows_per_step=30) as operator:
        for batch in stream.to_batches(max_chunksize=30):
            results += operator.push(batch)
            places.add(operator._scan.position % relation.num_pages)
            results += operator.step()
        results += operator.flush()
    assert len(places) > 10
    expected = batch_join(stream, table, {"product": "id"}, how, ["name", "tags", "price"])
    assert multiset(pa.Table.from_batches(results, operator.schema)) == multiset(expected)


@pytest.mark.parametrize(
    ("where", "sql"),
    [
        ("s.product < r.id", "s.product < r.id"),
        ("s.product BETWEEN r.id AND r.id", "s.product BETWEEN r.id AND r.id"),
        ("abs(s.product - r.id) <= 2", "abs(s.product - r.id) <= 2"),
        (pc.field("price") > 0.99, "r.price > 0.99"),
        (pc.field("n") > 15, "s.n > 15"),
    ],
)
@every_scan
def test_conditions_without_equality_check_every_pair(
    tmp_path: Path, where: Any, sql: str, kind: type[MeshJoin]
) -> None:
    table, stream = products(300), orders(20)
    path = write(table, tmp_path / "r.parquet", row_group_size=100)
    results = joined(stream, path, "left", kind, on=None, where=where, columns=["name"])
    assert multiset(results) == multiset(sql_join(stream, table, sql, "left", ["name"]))
    alone = joined(stream, path, "semi", kind, on=None, where=where)
    assert multiset(alone) == multiset(sql_join(stream, table, sql, "semi", []))


def test_equality_goes_with_other_conditions_and_nulls_never_match(tmp_path: Path) -> None:
    table = pa.table({"id": [1, None, 1, 2], "low": [5, 5, None, 0], "v": ["a", "b", "c", "d"]})
    stream = pa.table({"product": [1, 1, None, 2], "x": [6, 4, 9, None]})
    results = joined(stream, write(table, tmp_path / "r.parquet"), "left", where="s.x >= r.low", columns=["v"])
    assert multiset(results) == multiset(
        pa.table({"s": [1, 1, None, 2], "x": [6, 4, 9, None], "v": ["a", *[None] * 3]})
    )


def test_only_the_columns_of_the_join_are_read(tmp_path: Path) -> None:
    path = write(products(), tmp_path / "r.parquet", row_group_size=1000)
    relation = ParquetRelation.open(path)
    operators = [
        MeshJoin(relation, orders().schema, on={"product": "id"}, memory=MEMORY, columns=columns)
        for columns in (["price"], None)
    ]
    read = []
    for operator in operators:
        with operator:
            run(operator, tuple(orders().to_batches()))
            read.append(operator.stats.bytes_read)
    assert operators[0].relation.layout.schema.names[1:] == ["id", "price"]
    assert operators[0].relation.schema == relation.schema
    with MeshJoin(operators[0].relation, orders().schema, on={"product": "id"}, memory=MEMORY) as other:
        assert other.schema.names[2:] == ["name", "tags", "price"]
    metadata = pq.read_metadata(path)
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    assert read[0] == sum(g.column(0).total_compressed_size + g.column(3).total_compressed_size for g in groups)
    assert read[1] == sum(g.column(i).total_compressed_size for g in groups for i in range(4))


def test_row_groups_are_what_the_disk_counts(tmp_path: Path) -> None:
    relation = ParquetRelation.open(
        write(products(), tmp_path / "r.parquet", row_group_size=1000), page_bytes=16_384
    ).reading(["id"])
    disk = SimulatedDisk(seek_s=0.01, transfer_s=0.001)
    stream = orders()
    with MeshJoin(relation, stream.schema, on={"product": "id"}, memory=MEMORY, columns=[], disk=disk) as operator:
        run(operator, tuple(stream.to_batches()))
        stats = operator.stats
        assert operator.runs == operator.relation.num_pages
    assert stats.requests == stats.pages_seek == 5
    assert stats.pages_read == stats.steps == operator.relation.num_pages > 5
    assert stats.probes == 5000


def test_columns_go_by_name_and_may_be_missing_as_in_a_build(tmp_path: Path) -> None:
    first = pa.table({"id": [1, 2], "name": ["a", "b"], "price": [1.0, 2.0]})
    write(first, tmp_path / "d/1.parquet")
    write(pa.table({"price": [3.0], "extra": [0], "id": [3]}), tmp_path / "d/2.parquet")
    write(first.slice(0, 0), tmp_path / "d/3.parquet")
    found = joined(pa.table({"product": [1, 3]}), tmp_path / "d")
    assert multiset(found) == multiset(pa.table({"p": [1, 3], "name": ["a", None], "price": [1.0, 3.0]}))
    built = Relation.build(tmp_path / "d", tmp_path / "r", key="id")
    assert multiset(built.scan().read_all()) == multiset(ParquetRelation.open(tmp_path / "d").scan().read_all())


def test_another_type_is_refused_with_both_files_named(tmp_path: Path) -> None:
    write(pa.table({"id": [1], "v": ["a"]}), tmp_path / "1.parquet")
    write(pa.table({"v": ["b"], "id": pa.array([1], pa.int32())}), tmp_path / "2.parquet")
    with pytest.raises(RelationError, match=r"'id' is int32 in .*2\.parquet but int64 in .*1\.parquet"):
        ParquetRelation.open(tmp_path)


def test_long_offsets_and_names_of_list_values_are_no_other_type(tmp_path: Path) -> None:
    write(pa.table({"id": [1], "v": ["a"], "l": pa.array([[1]])}), tmp_path / "1.parquet")
    second = {"v": pa.array(["b"], pa.large_string()), "l": pa.array([[2]], pa.large_list(pa.field("x", pa.int64())))}
    write(pa.table({"id": [2], **second}), tmp_path / "2.parquet", use_compliant_nested_type=False)
    assert ParquetRelation.open(tmp_path).scan().read_all().to_pydict() == {
        "id": [1, 2],
        "v": ["a", "b"],
        "l": [[1], [2]],
    }


def test_partitions_in_paths_are_columns(tmp_path: Path) -> None:
    write(pa.table({"id": [1, 2]}), tmp_path / "day=5/at=a b/x.parquet")
    write(pa.table({"id": [1]}), tmp_path / "day=6/at=__HIVE_DEFAULT_PARTITION__/x.parquet")
    (tmp_path / "_SUCCESS").touch()
    stream = pa.table({"product": [1], "day": pa.array([6], pa.int32())})
    assert joined(stream, tmp_path, columns=["at"]).num_rows == 2
    assert joined(stream, tmp_path, on={"product": "id", "day": "day"}).to_pylist() == [
        {"product": 1, "day": 6, "at": None}
    ]


@every_scan
def test_no_rows_join_with_nothing(tmp_path: Path, kind: type[MeshJoin]) -> None:
    relation = ParquetRelation.open(write(products().slice(0, 0), tmp_path / "r.parquet"))
    assert (relation.num_rows, relation.num_pages) == (0, 0)
    assert joined(orders(), relation, kind=kind).num_rows == 0
    assert joined(orders(), relation, "anti", kind).num_rows == orders().num_rows


def test_nulls_views_and_extension_types_are_stored_plainly(tmp_path: Path) -> None:
    table = pa.table(
        {
            "id": [1, 2],
            "n": pa.nulls(2),
            "u": pa.array([b"0" * 16, None], pa.uuid()),
            "m": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int8())),
            "d": pa.array([{"a": {"b": 1}}, {"a": None}]),
        }
    )
    found = joined(pa.table({"product": [2, 1]}), write(table, tmp_path / "r.parquet"))
    assert found.sort_by("product").drop(["product", "u"]).to_pylist() == table.drop(["id", "u"]).to_pylist()
    assert set(found.column("u").to_pylist()) == {b"0" * 16, None}


@every_scan
def test_the_least_memory_is_named_and_enough(tmp_path: Path, kind: type[MeshJoin]) -> None:
    table, stream = products(), orders()
    relation = ParquetRelation.open(write(table, tmp_path / "r.parquet", row_group_size=1500))
    with pytest.raises(BudgetError) as refused:
        kind(relation, stream.schema, on={"product": "id"}, memory=1)
    least = refused.value.least_bytes
    assert least is not None
    assert least > relation.decoding_bytes
    with kind(relation, stream.schema, on={"product": "id"}, memory=least) as operator:
        results = run(operator, tuple(stream.to_batches()))
        assert operator.stats.peak_bytes <= least
    assert multiset(results) == multiset(
        batch_join(stream, table, {"product": "id"}, "inner", ["name", "tags", "price"])
    )


@pytest.mark.parametrize(("use_dictionary", "row_group_size"), [(True, 20_000), (False, 20_000), (True, 300_000)])
def test_decoding_stays_within_what_is_charged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use_dictionary: bool, row_group_size: int
) -> None:
    """Long strings that the file holds once: decoded at once they would take 60 MB."""
    values = pa.array([f"{i:03d}" * 66 for i in range(50)])
    rows = 300_000
    table = pa.table({"id": np.arange(rows), "v": values.take(pa.array(np.arange(rows) % 50))})
    path = write(table, tmp_path / "r.parquet", row_group_size=row_group_size, use_dictionary=use_dictionary)
    relation = ParquetRelation.open(path)
    assert relation.num_pages * relation.page_bytes < 60_000_000 or not use_dictionary
    held, sizes = [], []
    make = parquet_reader.page_of

    def watched(*arguments: Any) -> Any:
        made = make(*arguments)
        held.append(pa.total_allocated_bytes())
        sizes.append(made.buffer.size)
        return made

    monkeypatch.setattr(parquet_reader, "page_of", watched)
    del table, values
    before = pa.total_allocated_bytes()
    assert sum(batch.num_rows for batch in relation.scan()) == rows
    charged = relation.decoding_bytes + (2 + parquet_reader.COPIES) * relation.page_bytes
    assert max(held) - before <= charged
    assert relation.page_bytes / 2 < max(sizes) <= relation.page_bytes
    if row_group_size == 20_000:
        assert charged < 25_000_000


def test_pages_have_room_for_nulls_that_come_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A null gives all rows of its page a bit of validity, those of batches decoded before it too."""
    rows = 20_000
    flags = pa.array([i % 2000 != 1999 or None for i in range(rows)])
    table = pa.table({"v": ["a", "b"] * (rows // 2)} | {f"f{i}": flags for i in range(100)})
    relation = ParquetRelation.open(write(table, tmp_path / "r.parquet"), page_bytes=64_000)
    assert relation.rows_per_decode < relation.rows_per_page
    sizes = []
    make = parquet_reader.page_of

    def watched(*arguments: Any) -> Any:
        made = make(*arguments)
        sizes.append(made.buffer.size)
        return made

    monkeypatch.setattr(parquet_reader, "page_of", watched)
    assert relation.scan().read_all().equals(table)
    assert max(sizes) <= relation.page_bytes


@pytest.mark.parametrize("nested", [False, True])
def test_rows_beyond_a_page_are_refused_with_the_pages_that_take_them(tmp_path: Path, nested: bool) -> None:
    wide = ["y", "x" * 9000]
    table = pa.table({"id": [1, 2], "v": pa.array([[v] for v in wide]) if nested else wide})
    path = write(table, tmp_path / "r.parquet")
    with pytest.raises(BudgetError, match=r"Open it with page_bytes=(\d+)") as refused:
        ParquetRelation.open(path, page_bytes=8192).scan().read_all()
    enough = int(str(refused.value).split("page_bytes=")[1].split()[0])
    assert ParquetRelation.open(path, page_bytes=enough).scan().read_all().num_rows == 2


@pytest.mark.parametrize("kind", [EngineJoin, HybridJoin, IndexNestedLoopJoin, SemiStreamingIndexJoin, SweepJoin])
@pytest.mark.parametrize("condition", [{"on": {"product": "id"}}, {"where": "s.product < r.id"}])
def test_operators_on_clustered_pages_refuse_it(tmp_path: Path, kind: type[Any], condition: dict[str, Any]) -> None:
    relation = ParquetRelation.open(write(products(10), tmp_path / "r.parquet"))
    with pytest.raises(InvalidArgument, match=f"{kind.name!r} needs pages .* plain Parquet, .* use MeshJoin"):
        kind(relation, orders().schema, memory=MEMORY, **condition)


def test_a_refusal_has_the_commands_that_build_a_relation(tmp_path: Path) -> None:
    path = write(products(), tmp_path / "some products.parquet")
    with pytest.raises(InvalidArgument, match="Build a relation") as refused:
        HybridJoin(ParquetRelation.open(path), orders().schema, on={"product": "id"}, memory=MEMORY)
    command, code = str(refused.value).split("`")[1:4:2]
    program, *words = shlex.split(command)
    assert program == "semistream"
    assert run_command(*words).code == 0
    built = Relation.open(words[3])
    assert (built.key, built.num_rows) == (("id",), 5000)
    again = eval(code.replace("-relation", "-again"), {"Relation": Relation})
    assert again.key == ("id",)


def test_pages_per_step_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="pages_per_step is 2, but Parquet is joined page by page"):
        joined(orders(), write(products(), tmp_path / "r.parquet"), pages_per_step=2)
