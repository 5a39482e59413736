"""Source files that break the schema: found before any row is read, or where they cannot be read."""

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from semistream.errors import PipelineError
from semistream.pipelines.inputs.parquet_files import holds_all, parquet_inputs, require_readable
from semistream.pipelines.inputs.splits import SourceSplit, share_out
from semistream.pipelines.spec.column_types import column_type

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("at", pa.timestamp("us", "UTC"))])
GOOD = pa.table({"id": [1, 2], "name": ["a", None], "at": pa.array([0, None], pa.timestamp("us", "UTC"))})


def put(path, table, **options):
    pq.write_table(table, path, **options)
    return str(path)


def test_new_columns_are_passed_over_and_told(tmp_path):
    more = GOOD.append_column("extra", pa.array([1, 2])).append_column("also", pa.array([1, 2]))
    found = parquet_inputs([put(tmp_path / "a", GOOD), put(tmp_path / "b", more)], SCHEMA, 2, stop=True)
    assert found.new_columns == ["also", "extra"]
    assert [split.reason for split in found.splits] == [None, None]


@pytest.mark.parametrize(
    ("table", "told"),
    [
        (GOOD.drop_columns(["name"]), "the file has no column 'name'"),
        (GOOD.set_column(1, "name", pa.array([1, 2])), "the file's column 'name' is int64, the source's string"),
        (GOOD.set_column(0, "id", pa.array([1.0, 2.0])), "the file's column 'id' is double, the source's int64"),
        (GOOD.append_column("id", pa.array([1, 2])), "the file has the column 'id' 2 times"),
        (GOOD.set_column(2, "at", pa.array([0, 1], pa.timestamp("us"))), "'at' is timestamp[us], the source's"),
    ],
)
def test_missing_and_changed_columns_are_refused_or_stop(tmp_path, table, told):
    files = [put(tmp_path / "a", GOOD), put(tmp_path / "b", table)]
    right, wrong = parquet_inputs(files, SCHEMA, 2, stop=False).splits
    assert right.reason is None
    assert told in wrong.reason
    assert sum(batch.num_rows for batch in wrong.read(None)) == 2
    with pytest.raises(PipelineError) as stopped:
        parquet_inputs(files, SCHEMA, 2, stop=True)
    assert told in str(stopped.value)
    assert str(tmp_path / "b") in str(stopped.value)


def test_an_unreadable_file_is_one_row_and_a_missing_file_stops(tmp_path):
    (tmp_path / "a").write_bytes(b"")
    (tmp_path / "b").write_bytes(b"PAR1 is not enough PAR1")
    for split in parquet_inputs([str(tmp_path / "a"), str(tmp_path / "b")], SCHEMA, 2, stop=False).splits:
        assert split.reason.startswith("the file cannot be read")
        assert [batch.to_pylist() for batch in split.read(None)] == [[{"file": split.path}]]
    with pytest.raises(PipelineError, match="was removed before its batch was done"):
        parquet_inputs([str(tmp_path / "c")], SCHEMA, 2, stop=False)
    with pytest.raises(PipelineError, match="cannot be read: Permission denied"):
        require_readable("x", PermissionError(13, "Permission denied"))
    require_readable("x", OSError("Corrupt snappy compressed data."))


def test_row_groups_are_shared_out_and_none_is_left(tmp_path):
    table = pa.table({"id": np.arange(1000), "name": ["x"] * 1000, "at": pa.nulls(1000, SCHEMA.field("at").type)})
    files = [put(tmp_path / f"{i}", table, row_group_size=90) for i in range(3)]
    splits = parquet_inputs(files, SCHEMA, 2, stop=False).splits
    assert len(splits) > 3
    read = [batch.column("id") for part in share_out(splits, 2) for split in part for batch in split.read(["id"])]
    assert np.array_equal(np.sort(np.concatenate(read)), np.repeat(np.arange(1000), 3))
    empty = put(tmp_path / "empty", table.slice(0, 0))
    assert [batch for split in parquet_inputs([empty], SCHEMA, 2, stop=True).splits for batch in split.read(None)] == []


@pytest.mark.parametrize("tasks", [1, 2, 7])
def test_splits_are_shared_out_evenly(tasks):
    splits = [SourceSplit(str(i), nbytes=i * 10) for i in range(20)]
    parts = share_out(splits, tasks)
    assert sorted(split.path for part in parts for split in part) == sorted(split.path for split in splits)
    loads = [sum(split.nbytes for split in part) for part in parts]
    assert max(loads) - min(loads) <= 190
    assert share_out([], tasks) == []


SAMPLES = [
    pa.array([2**63 - 1, -(2**63)], pa.int64()), pa.array([2**31 - 1, -(2**31)], pa.int32()),
    pa.array([127, -128], pa.int8()), pa.array([2**64 - 1, 0], pa.uint64()), pa.array([2**32 - 1], pa.uint32()),
    pa.array([1.7976931348623157e308, 5e-324], pa.float64()), pa.array([3.4028234663852886e38], pa.float32()),
    pa.array(["é", ""], pa.string()), pa.array(["é"], pa.large_string()), pa.array([b"\xff"], pa.binary()),
    pa.array([b"ab"], pa.binary(2)), pa.array(["x"]).dictionary_encode(), pa.array([None], pa.null()),
    pa.array([Decimal("99999.99")], pa.decimal128(7, 2)), pa.array([Decimal("9.999")], pa.decimal128(4, 3)),
    pa.array([Decimal("9" * 38)], pa.decimal128(38, 0)), pa.array([True], pa.bool_()), pa.array([3], pa.date32()),
    pa.array([1], pa.timestamp("us", "UTC")), pa.array([1], pa.timestamp("ms", "UTC")),
    pa.array([1], pa.timestamp("us")), pa.array([1], pa.timestamp("ns")), pa.array([1], pa.timestamp("ns", "UTC")),
]  # fmt: skip


SOURCE_TYPES = ["boolean", "tinyint", "int", "bigint", "float", "double", "string", "binary", "date", "timestamp"]


@pytest.mark.parametrize("name", [*SOURCE_TYPES, "timestamp_ntz", "decimal(7,2)", "decimal(38,0)", "decimal(9,3)"])
def test_a_type_that_holds_all_values_of_another_is_cast_to_without_loss(name):
    wide = column_type(name)
    held = [sample for sample in SAMPLES if holds_all(wide, sample.type)]
    assert {wide, pa.null()} <= {sample.type for sample in [*held, pa.nulls(1, wide)]}
    for sample in held:
        assert sample.cast(wide).to_pylist() == sample.to_pylist()
    for sample in SAMPLES:
        if sample not in held and not pa.types.is_temporal(sample.type) and sample.type.id == wide.id:
            with pytest.raises(pa.ArrowInvalid):
                sample.cast(wide)
