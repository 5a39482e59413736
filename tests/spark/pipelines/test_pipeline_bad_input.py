"""Bad input of pipelines: it is reported, quarantined, or stops the pipeline before any table has its batch."""

import gzip
import json

import pyarrow as pa
import pytest

from semistream.errors import PipelineError
from semistream.relation import Relation
from tests.spark.pipelines.warehouse import orders, rows, run, star

pytestmark = pytest.mark.spark


def source(format, **changes):
    return {"format": format, "options": {"header": "true"} if format == "csv" else {}, **changes}


@pytest.mark.parametrize("format", ["parquet", "json", "csv"])
def test_a_source_that_changes_is_told_or_kept_aside(spark, warehouse, format):
    first, second, third, fourth = (orders(40, seed=i, first=i * 40) for i in range(4))
    warehouse.put(first, f"0.{format}", format)
    warehouse.put(second.append_column("colour", pa.array(["red"] * 40)), f"1.{format}", format)
    warehouse.put(third.drop_columns(["amount"]), f"2.{format}", format)
    changed = fourth.set_column(3, "quantity", pa.array(["many"] * 40))
    warehouse.put(changed, f"3.{format}", format)
    (report,) = run(spark, warehouse.spec(source=source(format)))
    good = [first, second]
    if format == "json":  # a missing field is null, in each row by itself
        good.append(third.set_column(4, "amount", pa.nulls(40, pa.float64())))
    assert rows(warehouse.table("sink")) == star(pa.concat_tables(good))[0]
    assert [remark for remark in report.remarks if "which are ignored: colour" in remark]
    quarantine = warehouse.table("quarantine").to_pylist()
    assert report.outcomes["invalid"] == len(quarantine) == {"parquet": 80, "json": 40, "csv": 81}[format]
    assert all(told_of(row, format) for row in quarantine)


def told_of(row, format):
    """A row of the quarantine has the raw content and the reason."""
    if format == "parquet":
        return "amount" in row["reason"] or "quantity" in row["reason"]
    return bool(row["raw"]) and "cannot be read" in row["reason"]


@pytest.mark.parametrize("format", ["parquet", "csv"])
def test_a_source_that_changes_stops_if_asked_to(spark, warehouse, format):
    good = orders(40)
    warehouse.put(good, f"0.{format}", format)
    spec = warehouse.spec(source=source(format, on_schema_change="stop"))
    run(spark, spec)
    warehouse.put(orders(40, first=40).drop_columns(["amount"]), f"1.{format}", format)
    with pytest.raises(PipelineError, match=f"the source has changed: .*1.{format}.* no column 'amount'"):
        run(spark, spec)
    assert rows(warehouse.table("sink")) == star(good)[0]
    repaired = orders(40, first=40)
    warehouse.put(repaired, f"1.{format}", format)
    (report,) = run(spark, spec)
    assert report.rows_in == 40
    assert rows(warehouse.table("sink")) == star(pa.concat_tables([good, repaired]))[0]


def test_a_relation_with_a_flipped_byte_names_the_page_and_is_gone_on_with_after_repair(spark, warehouse):
    stream = orders(300)
    warehouse.put(stream, "0.parquet")
    (data,) = (warehouse.folder / "products" / "data").iterdir()
    content = data.read_bytes()
    page = int(Relation.open(warehouse.folder / "products").table.segments[0].offset[1])
    data.write_bytes(content[: page + 300] + bytes([content[page + 300] ^ 1]) + content[page + 301 :])
    spec = warehouse.spec()
    with pytest.raises(PipelineError, match=r"page 1 .*damaged|page 1\b"):
        run(spark, spec)
    assert warehouse.table("sink").num_rows == 0
    assert warehouse.table("unmatched").num_rows == 0
    data.write_bytes(content)
    (report,) = run(spark, spec)
    assert report.rows_in == 300
    assert rows(warehouse.table("sink")) == star(stream)[0]


def test_a_missing_relation_is_named_and_leaves_the_pipeline_as_it_was(spark, warehouse):
    warehouse.put(orders(10), "0.parquet")
    (warehouse.folder / "products").rename(warehouse.folder / "away")
    with pytest.raises(Exception, match="products") as refused:
        run(spark, warehouse.spec())
    assert "products" in str(refused.value)
    (warehouse.folder / "away").rename(warehouse.folder / "products")
    assert run(spark, warehouse.spec())[0].rows_in == 10


def test_a_table_that_cannot_be_written_keeps_the_batch_for_later(spark, warehouse):
    stream = orders(100)
    warehouse.put(stream, "0.parquet")
    spec = warehouse.spec(format="parquet")
    run(spark, spec)
    more = orders(100, seed=1, first=100)
    warehouse.put(more, "1.parquet")
    staging = warehouse.folder / "tables" / "sink" / "_staging"
    staging.rmdir()
    staging.write_text("a file where the folder was")
    with pytest.raises(PipelineError, match="cannot be"):
        run(spark, spec)
    assert rows(warehouse.table("unmatched"), "id", "stopped_at") == star(stream)[1]
    staging.unlink()
    run(spark, spec)
    both = pa.concat_tables([stream, more])
    assert rows(warehouse.table("sink")) == star(both)[0]
    assert rows(warehouse.table("unmatched"), "id", "stopped_at") == star(both)[1]


def test_poisoned_rows_never_stop_the_pipeline(spark, warehouse):
    good = orders(30)
    warehouse.put(good, "0.json", "json")
    huge = "x" * 3_000_000
    row = {"id": 1, "product": 2, "customer": "c1", "quantity": 1, "amount": 1.0}
    poisoned = [
        "{", "[]", "null", '"text"', "42", "\x00\x01", "{}" * 3, json.dumps(row)[:-5], "[" * 500,
        json.dumps({**row, "quantity": 2**40}), json.dumps({**row, "quantity": "1"}), json.dumps({**row, "id": 1.5}),
        json.dumps({**row, "id": 2**70}), json.dumps({**row, "product": [2]}), json.dumps({**row, "amount": "NaN?"}),
    ]  # fmt: skip
    nulls = {**row, "id": 1000, "product": None}
    long = {**row, "id": 1001, "customer": huge}
    lines = [*poisoned, json.dumps(nulls), json.dumps(long), "", json.dumps({**row, "id": 1002})]
    (warehouse.folder / "orders" / "1.json").write_text("\n".join(lines) + "\n")
    reports = run(spark, warehouse.spec(source={"format": "json", "files_per_batch": 1}))
    assert all(sum(report.outcomes.values()) == report.rows_in for report in reports)
    expected = pa.Table.from_pylist([{**row, "id": 1002}], schema=good.schema)
    assert rows(warehouse.table("sink")) >= star(pa.concat_tables([good, expected]))[0]
    stopped = dict(rows(warehouse.table("unmatched"), "id", "stopped_at"))
    assert (1000, "products") in stopped
    kept = warehouse.table("quarantine").column("raw").to_pylist()
    assert {"{", '"text"', json.dumps(row)[:-5], json.dumps({**row, "quantity": 2**40})} <= set(kept)
    assert sum(report.outcomes["invalid"] for report in reports) == len(kept)
    assert [len(text) > len(huge) for text in kept].count(True) == 1


def test_lines_beyond_every_limit_of_a_parser_never_stop_the_pipeline(spark, warehouse):
    row = {"id": 1, "product": 2, "customer": "c1", "quantity": 1, "amount": 1.0}
    begun = json.dumps(row)[:-1]
    lines = [
        *("[" * depth for depth in (3000, 100_000)), "[" * 3000 + "]" * 3000, '{"x":' * 3000 + "1" + "}" * 3000,
        *(f'{begun}, "{name}": {"[" * 3000}{"]" * 3000}}}' for name in ("other", "customer")),
        json.dumps({**row, **{f"k{i}": i for i in range(20_000)}}), '{"' + "k" * 100_000 + '": 1}',
        *(f'{begun}, "{name}": {"9" * 5000}}}' for name in ("quantity", "amount", "customer")),
        *(f'{begun}, "{name}": 1e9999999}}' for name in ("id", "amount", "customer")),
        *(f'{begun}, "customer": "{text}"}}' for text in (r"\ud800", r"\u0000", "\x00", "x" * 25_000_000)),
        *(f'{begun}, "amount": {text}}}' for text in ("NaN", "-Infinity", '"NaN"')), f'{begun}, "id": NaN}}',
        f"[{json.dumps(row)}]", f"[{json.dumps(row)}, {json.dumps(row)}]", f'{begun}, "id": 7}}', "\x00" * 9, "   ", "",
    ]  # fmt: skip
    good = [json.dumps({**row, "id": 1000 + i}) for i in range(len(lines) + 1)]
    mixed = [line for pair in zip(good, [*lines, "y" * 30_000_000], strict=True) for line in pair]
    content = "\n".join(mixed).encode() + b"\n" + json.dumps(row).encode().replace(b"c1", b"c\xff\xfe1") + b"\n"
    (warehouse.folder / "orders" / "0.json").write_bytes(content)
    (report,) = run(spark, warehouse.spec(source={"format": "json"}))
    assert sum(report.outcomes.values()) == report.rows_in
    assert all(len(remark) < 1000 for remark in report.remarks)
    joined = warehouse.table("sink").column("id").to_pylist()
    assert {number for number in joined if number >= 1000} == {1000 + i for i in range(len(good))}
    kept = warehouse.table("quarantine").column("raw").to_pylist()
    assert len(kept) == report.outcomes["invalid"]
    assert set(kept) - set(lines) == {"y" * 30_000_000, str(content.splitlines()[-1])}
    assert {lines[0], lines[1], lines[2], lines[3], "\x00" * 9} <= set(kept)
    assert report.rows_in >= 2 * len(good) - 1


def test_csv_files_beyond_the_limits_of_a_parser_are_quarantined(spark, warehouse):
    good = orders(20)
    warehouse.put(good, "0.csv", "csv")
    folder = warehouse.folder / "orders"
    (folder / "1.csv").write_text("x" * 200_000 + "\n" + "1,2,c1,1,1.0\n")
    (folder / "2.csv").write_bytes(b"\x00\x01\n")
    lines = ["id,product,customer,quantity,amount", '1,2,"c1,1,1.0', "1" * 5000 + ",,,,1e99999", "," * 30_000]
    (folder / "3.csv").write_text("\n".join(lines) + "\n")
    reports = run(spark, warehouse.spec(source=source("csv", files_per_batch=1)))
    assert sum(report.outcomes["invalid"] for report in reports) == 2 + 1 + 3
    assert rows(warehouse.table("sink")) == star(good)[0]


def test_a_file_that_spark_cannot_read_is_named_and_read_once_it_is_whole(spark, warehouse):
    text = "".join(json.dumps(row) + "\n" for row in orders(3000).to_pylist()).encode()
    path = warehouse.folder / "orders" / "0.json.gz"
    path.write_bytes(gzip.compress(text)[:-100])
    spec = warehouse.spec(source={"format": "json"})
    with pytest.raises(PipelineError, match=r"orders/0\.json\.gz, a file of the source, cannot be read: .* whole file"):
        run(spark, spec)
    path.unlink()
    with pytest.raises(PipelineError, match=r"orders/0\.json\.gz, a file of the source, cannot be read: No such file"):
        run(spark, spec)
    path.write_bytes(gzip.compress(text))
    (report,) = run(spark, spec)
    assert report.rows_in == 3000


def test_a_row_on_which_an_expression_fails_is_quarantined(spark, warehouse):
    stream = orders(60)
    warehouse.put(stream, "0.json", "json")
    (warehouse.folder / "orders" / "1.json").write_text("{broken\n")
    join = {"join": {"relation": str(warehouse.folder / "products"), "on": {"product": "id"}, "unmatched": "null"}}
    columns = {"share": "amount / (quantity - 4)", "more": "share + 1", "code": "cast(substr(customer, 2) AS tinyint)"}
    spec = warehouse.spec({"compute": columns}, join, source={"format": "json"})
    (report,) = run(spark, spec)
    good = [row for row in stream.to_pylist() if row["quantity"] != 4]
    found = {row["id"]: row for row in warehouse.table("sink").to_pylist()}
    assert sorted(found) == [row["id"] for row in good]
    for row in good:
        assert found[row["id"]]["share"] == row["amount"] / (row["quantity"] - 4)
        assert found[row["id"]]["more"] == found[row["id"]]["share"] + 1
        assert found[row["id"]]["code"] == int(row["customer"][1:])
    raw = warehouse.table("quarantine").column("raw").to_pylist()
    assert report.outcomes["invalid"] == len(raw) == 60 - len(good) + 1
    told = [json.loads(text.removeprefix("(share cannot be computed) ")) for text in raw if text != "{broken"]
    assert sorted(told, key=lambda row: row["id"]) == [row for row in stream.to_pylist() if row["quantity"] == 4]
