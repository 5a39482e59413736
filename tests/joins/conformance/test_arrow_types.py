"""Every Arrow type, as payload of S and of R and as key, in every operator. docs/types.md has the results."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import semistream
from semistream import ParquetRelation, Relation
from semistream.errors import InvalidArgument, KeyTypeError
from semistream.keys.plain_types import converted
from semistream.relation import AnyRelation
from semistream.tuning.candidates import OPERATORS
from tests.arrow_types import TYPES, Celsius, python, several, turned
from tests.joins.conformance.operators import least_memory
from tests.relation.row_sets import scratch_folder

TEXT = Path(__file__).parents[3].joinpath("docs", "types.md").read_text()
TABLE = TEXT.partition("| column |")[2].partition("\n\n")[0]
ROWS = dict(re.findall(r"^\| (.+?) \| (.+) \|$", TABLE, re.MULTILINE))
JOIN: dict[str, Any] = {"on": {"s": "k"}, "how": "left"}
MEMORY = 1_000_000
every_type = pytest.mark.parametrize("label", TYPES)


@pytest.fixture(autouse=True, scope="module")
def _registered() -> Iterator[None]:
    pa.register_extension_type(Celsius())
    yield
    pa.unregister_extension_type(Celsius().extension_name)


@contextmanager
def built(table: pa.Table) -> Iterator[Relation]:
    with scratch_folder() as folder:
        yield Relation.build(table, folder / "r", key="k", page_bytes=1024)


def rows_of(table: pa.Table) -> Counter[Any]:
    table.validate(full=True)
    return Counter(zip(*(python(column) for column in table.columns), strict=True))


def joined_rows(stream: dict[str, list[Any]], relation: dict[str, list[Any]]) -> Counter[Any]:
    """The left join on ``s`` and ``k``, by brute force."""
    found: Counter[Any] = Counter()
    for row in zip(*stream.values(), strict=True):
        same = [i for i, key in enumerate(relation["k"]) if key is not None and key == row[0]]
        rest = [values for name, values in relation.items() if name != "k"]
        found.update([(*row, *(values[i] for values in rest)) for i in same] or [(*row, *(None for _ in rest))])
    return found


def columns(table: pa.Table) -> dict[str, list[Any]]:
    return {name: python(table[name]) for name in table.column_names}


def batches_of(table: pa.Table) -> list[pa.RecordBatch]:
    """Batches whose dictionaries differ."""
    batches = table.to_batches(max_chunksize=13)
    for i in range(1, len(batches), 2):
        batches[i] = pa.RecordBatch.from_arrays([turned(column) for column in batches[i].columns], schema=table.schema)
    return batches


def payload_case(label: str) -> tuple[pa.Table, pa.Table]:
    """A stream and a relation with a key and a column of a type."""
    values = TYPES[label]
    stream = pa.table({"s": [(7 * i) % 40 for i in range(50)], "v": several(values, 50, 1)})
    return stream, pa.table({"k": list(range(30)), "w": several(values, 30)})


def text(type_: pa.DataType, own: pa.DataType | None = None) -> str:
    """A type as the page names it; ``own`` is that of the input."""
    if type_ == own:
        return "the same"
    found = re.sub(r"(, ordered=0|, indices=\w+|run_ends: \w+, |item: |element: | not null)", "", str(type_))
    found = re.sub(r"dictionary<values=", "dictionary<", found)
    return f"`{found}`".replace("values: ", "")


def left_joins(stream: pa.Table, relation: AnyRelation, operator: str) -> Iterator[pa.Table]:
    """The join of a table in plenty of memory, and of batches in the least that the operator says it needs."""
    least = least_memory(lambda nbytes: OPERATORS[operator](relation, stream.schema, memory=nbytes, **JOIN))
    for source, memory in ((stream, MEMORY), (iter(batches_of(stream)), least)):
        joined = semistream.join(source, relation, operator=operator, memory=memory, **JOIN)
        found = joined.read_all()
        assert found.schema == joined.schema
        assert joined.stats.peak_bytes <= memory
        yield found


def stored_values(label: str, column: pa.ChunkedArray) -> list[Any]:
    """The values as R gives them out: those of the storage type of an extension type."""
    if isinstance(column.type, pa.BaseExtensionType):
        return [value for chunk in column.chunks for value in python(chunk.storage)]
    if label == "list of uuid":
        return [None if value is None else tuple(v and v.bytes for v in value) for value in python(column)]
    return python(column)


@every_type
def test_payload_of_every_type_in_every_operator(label: str) -> None:
    stream, table = payload_case(label)
    own = TYPES[label].type
    with built(table) as relation:
        stored = relation.schema.field("w").type
        expected = joined_rows(columns(stream), {"k": table["k"].to_pylist(), "w": stored_values(label, table["w"])})
        for operator in OPERATORS:
            for found in left_joins(stream, relation, operator):
                assert rows_of(found) == expected, operator
                given = found.schema.field("v").type
                assert found.schema.field("w").type == stored
                assert ROWS[label].split(" | ")[:2] == [text(given, own), text(stored, own)], operator


@every_type
def test_key_of_every_comparable_type_in_every_operator(label: str) -> None:
    values = TYPES[label]
    table = pa.table({"k": several(values, 2 * len(values)), "n": np.arange(2 * len(values))})
    stream = pa.table({"s": several(values, 20, 1), "m": np.arange(20)})
    is_key = ROWS[label].split(" | ")[2] == "yes"
    if not is_key:
        refused = pytest.raises(KeyTypeError, match=r"key column 'k' has type .* cannot be a join key.*Cast the column")
        with refused, built(table):
            pass
        with built(pa.table({"k": np.arange(5)})) as relation, pytest.raises(KeyTypeError, match=r"'s' is .*Cast"):
            semistream.join(stream, relation, on={"s": "k"}, memory=MEMORY)
        return
    expected = joined_rows(columns(stream), columns(table))
    with built(table) as relation:
        for operator in OPERATORS:
            for found in left_joins(stream, relation, operator):
                assert rows_of(found) == expected, operator


def test_the_page_has_every_type_and_no_other() -> None:
    assert list(ROWS) == list(TYPES)


PARQUET = [label for label, values in TYPES.items() if not re.search("union|interval|duration|list_view|run", label)]


@pytest.mark.parametrize("label", PARQUET)
def test_plain_parquet_and_relations_built_of_it(label: str, tmp_path: Path) -> None:
    stream, table = payload_case(label)
    try:
        pq.write_table(table, tmp_path / "r.parquet")
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        pytest.skip("Parquet has no such type")
    expected = joined_rows(columns(stream), {"k": table["k"].to_pylist(), "w": stored_values(label, table["w"])})
    plain = ParquetRelation.open(tmp_path / "r.parquet")
    relation = Relation.build(tmp_path / "r.parquet", tmp_path / "r", key="k")
    for source, operator in ((plain, "mesh"), (plain, "adaptive_mesh"), (plain, "cmesh"), (relation, "engine")):
        found = semistream.join(stream, source, operator=operator, memory=20 * MEMORY, **JOIN).read_all()
        assert rows_of(found) == expected, operator
    if ROWS[label].endswith("yes"):
        keyed, stream = pa.table({"k": TYPES[label], "n": np.arange(len(TYPES[label]))}), pa.table({"s": TYPES[label]})
        pq.write_table(keyed, tmp_path / "k.parquet")
        expected = joined_rows(columns(stream), columns(keyed))
        built_of_it = Relation.build(tmp_path / "k.parquet", tmp_path / "k", key="k")
        for source in (ParquetRelation.open(tmp_path / "k.parquet"), built_of_it):
            assert rows_of(semistream.join(stream, source, memory=20 * MEMORY, **JOIN).read_all()) == expected


@every_type
def test_updates_and_look_ups_of_every_type(label: str) -> None:
    values = TYPES[label]
    before = pa.table({"k": np.arange(20), "w": several(values, 20)})
    after = pa.table({"k": np.arange(15, 25), "w": several(turned(values), 10, 2)})
    expected = pa.concat_tables([before.slice(0, 15), after])
    with built(before) as relation:
        updated = relation.update(upserts=after)
        found = updated.lookup(np.arange(30))
        assert found["w"].type == relation.schema.field("w").type
        assert updated.verify().rows == 25
        assert updated.update(deletes=[0, 99]).num_rows == 24
        assert Counter(python(found["w"])) == Counter(stored_values(label, expected["w"]))
    if not ROWS[label].endswith("yes"):
        return
    with built(pa.table({"k": several(values, 9), "n": np.arange(9)})) as relation:
        given = values.slice(0, 1)
        same = [i for i, value in enumerate(python(several(values, 9))) if value == python(given)[0] is not None]
        assert sorted(relation.lookup(given)["n"].to_pylist()) == same
        assert relation.update(deletes=given).num_rows == 9 - len(same)


@every_type
def test_arrow_files_as_stream_and_as_source(label: str, tmp_path: Path) -> None:
    stream, table = payload_case(label)
    for name, rows in (("s", stream), ("r", table)):
        with pa.OSFile(str(tmp_path / f"{name}.arrow"), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
            writer.write_table(rows)
    relation = Relation.build(tmp_path / "r.arrow", tmp_path / "r", key="k")
    found = semistream.join(str(tmp_path / "s.arrow"), relation, memory=MEMORY, **JOIN).read_all()
    expected = joined_rows(columns(stream), {"k": table["k"].to_pylist(), "w": stored_values(label, table["w"])})
    assert rows_of(found) == expected


SPELLINGS = ["string", "large_string", "string_view", "dictionary of string_view", "run-end encoded strings", "json"]


@pytest.mark.parametrize("label", SPELLINGS)
def test_keys_in_other_encodings_are_the_same_keys(label: str) -> None:
    words = pa.array(["a", None, "b" * 20, "[1]", "c"])
    spelt = {
        other: pa.ExtensionArray.from_storage(pa.json_(), words)
        if other == "json"
        else converted(words, TYPES[other].type)
        for other in SPELLINGS
    }
    with built(pa.table({"k": spelt[label], "n": np.arange(5)})) as relation:
        for other in SPELLINGS:
            stream = pa.table({"s": spelt[other], "m": np.arange(5)})
            for operator in ("mesh", "engine"):
                found = semistream.join(stream, relation, on={"s": "k"}, operator=operator, memory=MEMORY).read_all()
                assert sorted(found["m"].to_pylist()) == sorted(found["n"].to_pylist()) == [0, 2, 3, 4]


def test_batches_of_one_stream_may_differ_in_their_encodings() -> None:
    plain = pa.table({"s": [1, 2], "v": ["x", "y"]})
    encoded = pa.table({"s": pa.array([2, 9]).dictionary_encode(), "v": pa.array(["z", None], pa.string_view())})
    with (
        built(pa.table({"k": [1, 2]})) as relation,
        semistream.MeshJoin(relation, encoded.schema, memory=MEMORY, **JOIN) as join,
    ):
        results = [found for table in (plain, encoded) for batch in table.to_batches() for found in join.push(batch)]
        found = pa.Table.from_batches([*results, *join.flush()])
        assert found.schema.types == [pa.dictionary(pa.int32(), pa.int64()), pa.string_view()]
        assert rows_of(found) == Counter([(1, "x"), (2, "y"), (2, "z"), (9, None)])
        with pytest.raises(InvalidArgument, match=r"a batch has the columns \(s: double"):
            join.push(pa.record_batch({"s": [1.5], "v": ["x"]}))
    with (
        built(pa.table({"k": [1, 2]})) as relation,
        semistream.MeshJoin(relation, plain.schema, memory=MEMORY, **JOIN) as join,
        pytest.raises(InvalidArgument, match=r"a batch has the columns \(s: dictionary"),
    ):
        join.push(encoded.to_batches()[0])


@pytest.mark.parametrize("operator", OPERATORS)
def test_a_dictionary_of_long_words_costs_only_the_words_that_wait(operator: str) -> None:
    """50,000 words of 160 bytes, the same in each batch: 8 MB if it were charged once, 400 MB if for every batch."""
    words = pa.array([f"{i:0160}" for i in range(50_000)])
    rng = np.random.default_rng(5)
    batches = [
        pa.record_batch(
            {
                "s": pa.array(rng.integers(0, 500, 100)),
                "v": pa.DictionaryArray.from_arrays(pa.array(rng.integers(0, 50_000, 100), pa.int32()), words),
            }
        )
        for _ in range(50)
    ]
    with built(pa.table({"k": np.arange(300), "w": np.arange(300)})) as relation:
        for memory in (400_000, 8_000_000):
            joined = semistream.join(iter(batches), relation, operator=operator, memory=memory, **JOIN)
            found = joined.read_all()
            assert joined.stats.peak_bytes <= memory
            assert found["v"].type == batches[0]["v"].type
            given = Counter((row["s"], row["v"]) for batch in batches for row in batch.to_pylist())
            assert Counter(zip(found["s"].to_pylist(), found["v"].to_pylist(), strict=True)) == given


def test_more_values_than_an_index_holds_come_in_several_batches() -> None:
    small = pa.dictionary(pa.int8(), pa.string())
    batches = [
        pa.record_batch(
            {"s": np.arange(100), "v": pa.array([f"{i} {n}" for n in range(100)]).dictionary_encode().cast(small)}
        )
        for i in range(5)
    ]
    with built(pa.table({"k": np.arange(100)})) as relation:
        results = list(semistream.join(iter(batches), relation, operator="mesh", memory=MEMORY, **JOIN))
    assert len(results) > 1
    assert {result.schema.field("v").type for result in results} == {small}
    assert sorted(v for result in results for v in result["v"].to_pylist()) == sorted(
        v for batch in batches for v in batch["v"].to_pylist()
    )


def test_an_ordered_dictionary_comes_back_unordered() -> None:
    sizes = pa.DictionaryArray.from_arrays(pa.array([2, 0]), pa.array(["s", "m", "l"]), ordered=True)
    with built(pa.table({"k": [1, 2]})) as relation:
        found = semistream.join(pa.table({"s": [1, 2], "v": sizes}), relation, memory=MEMORY, **JOIN).read_all()
    assert found["v"].type == pa.dictionary(pa.int64(), pa.string())
    assert sorted(found["v"].to_pylist()) == ["l", "s"]


@pytest.mark.parametrize("label", ["string_view", "dictionary of strings", "uuid", "dense_union"])
def test_order_deadlines_and_conditions_hold_for_converted_columns(label: str) -> None:
    stream, table = payload_case(label)
    with built(table) as relation:
        found = semistream.join(stream, relation, memory=MEMORY, ordered=True, deadline_s=60.0, **JOIN).read_all()
        assert found["s"].to_pylist() == stream["s"].to_pylist()
        assert python(found["v"]) == python(stream["v"])
        if label in ("dense_union",):
            return
        equal = semistream.join(stream, relation, where="s.v = r.w", memory=MEMORY).read_all()
        ours, theirs = stored_values(label, stream["v"]), stored_values(label, table["w"])
        assert equal.num_rows == sum(v is not None and v == w for v in ours for w in theirs)


def test_the_page_names_tests_that_exist() -> None:
    root = Path(__file__).parents[3]
    for file, test in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", TEXT):
        assert f"\ndef {test}(" in root.joinpath(file).read_text()


@pytest.mark.parametrize("operator", ["mesh", "cmesh", "engine"])
def test_frames_and_files_of_polars(operator: str, tmp_path: Path) -> None:
    pl = pytest.importorskip("polars")
    rows = 60
    frame = pl.DataFrame(
        {
            "k": [f"key {i % 40}" for i in range(rows)],
            "kind": pl.Series([f"kind {i % 7}" for i in range(rows)], dtype=pl.Categorical),
            "level": pl.Series(["low", "high", None] * (rows // 3), dtype=pl.Enum(["low", "high"])),
            "parts": [[{"n": i, "tags": ["x"] * (1 + i % 3)}] for i in range(rows)],
        }
    )
    frame.write_parquet(tmp_path / "r.parquet")
    stream = frame.rename({"k": "s"}).select("s", pl.col("kind").alias("own"), "level")
    relation: AnyRelation = ParquetRelation.open(tmp_path / "r.parquet")
    if operator == "engine":
        relation = Relation.build(frame, tmp_path / "r", key="k")
    joined = semistream.join(stream, relation, operator=operator, on={"s": "k"}, memory=20 * MEMORY)
    found = pl.from_arrow(joined.read_all())
    expected = stream.join(frame, left_on="s", right_on="k")
    assert isinstance(found, pl.DataFrame)
    assert found.columns == expected.columns
    assert Counter(map(repr, found.rows())) == Counter(map(repr, expected.rows()))
    assert found.schema["own"] == pl.Categorical
