"""Files beside the pages, made to be harmful with checksums that fit, and hostile sources: refused by name."""

from __future__ import annotations

import base64
import dataclasses
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash

from semistream.errors import CorruptRelation, RelationError
from semistream.pipelines.inputs.parquet_files import parquet_inputs
from semistream.relation import Relation
from semistream.relation.changes import read_changes
from semistream.relation.format.arrow_files import sound_batches
from semistream.relation.format.manifest import WholeFile, encode_schema, manifest_name, write_manifest
from semistream.relation.write.sources import open_source
from semistream.relation.write.version_draft import seal_whole
from tests.relation.format.test_crafted_pages import TABLE, forge

SCHEMA = pa.schema([("k", pa.int64()), ("text", pa.string())])


def ipc(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def beyond() -> bytes:
    """An Arrow file with a text whose offset leads 100 MB out of it."""
    offsets = b"".join(n.to_bytes(4, "little") for n in (0, 3, 6))
    content = ipc(pa.table({"k": [1, 2], "text": ["abc", "def"]}, schema=SCHEMA))
    assert content.count(offsets) == 1
    return content.replace(offsets, offsets[:8] + (100_000_000).to_bytes(4, "little"))


def sealed(folder: Path, content: bytes) -> WholeFile:
    (folder / "x.arrow").write_bytes(content)
    return WholeFile("x.arrow", len(content), xxhash.xxh64_intdigest(content))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    nulls = pa.table(
        {**{name: TABLE.column(name) for name in TABLE.column_names}, "k": pa.array([None] * 3 + [*range(297)])}
    )
    return Relation.build(nulls, tmp_path / "r", key="k", page_bytes=2048).path


@pytest.mark.parametrize("schema", [b"", b"x", b"\xff" * 40, bytes(64), pa.schema([]).serialize().to_pybytes()[:-8]])
def test_a_schema_that_cannot_be_read_is_a_corrupt_manifest(path, schema):
    manifest = Relation.open(path).manifest
    write_manifest(path, dataclasses.replace(manifest, schema_bytes=base64.b64encode(schema).decode()))
    with pytest.raises(CorruptRelation, match="is not a manifest"):
        Relation.open(path)


def test_a_column_of_a_type_that_no_relation_stores_is_corrupt(path):
    manifest = Relation.open(path).manifest
    schema = manifest.schema.set(1, pa.field("text", pa.string_view()))
    write_manifest(path, dataclasses.replace(manifest, schema_bytes=encode_schema(schema)))
    with pytest.raises(CorruptRelation, match="a type that no relation stores"):
        Relation.open(path)


@pytest.mark.parametrize("text", ["", "x", "semistream relation, version ", "semistream relation, version -1"])
def test_a_pointer_without_a_version_is_corrupt_though_its_checksum_fits(path, text):
    for each in (text, text + "9" * 5000, text + "\u0663"):
        (path / "CURRENT").write_text(f"{each}, check {xxhash.xxh64_hexdigest(each.encode())}\n")
        with pytest.raises(CorruptRelation, match="CURRENT does not match its checksum"):
            Relation.open(path)


def test_a_manifest_with_half_a_character_is_corrupt(path):
    file = path / manifest_name(1)
    whole = file.read_text()
    file.write_text(whole.replace("num_rows", "num\\ud800rows"))
    with pytest.raises(CorruptRelation, match="does not match its checksum"):
        Relation.open(path)
    body = json.loads(whole)["manifest"].replace('"k"', '"\\ud800"')
    record = {"format": 1, "checksum": xxhash.xxh64_hexdigest(body.encode()), "manifest": body}
    file.write_text(json.dumps(record))
    with pytest.raises(CorruptRelation, match=r"the key .* is not among the columns"):
        Relation.open(path)


@pytest.mark.parametrize("content", [b"", b"ARROW1", b"x" * 1000, b"ARROW1\0\0" + b"\xff" * 50 + b"ARROW1"])
def test_a_page_table_that_cannot_be_read_is_named(path, content):
    manifest = Relation.open(path).manifest
    whole = (path / manifest.page_table.name).read_bytes()
    for each in (content, whole[:-30] + b"\x7f" * 10 + whole[-20:], whole[: len(whole) // 2] + whole[-40:]):
        (path / manifest.page_table.name).write_bytes(each)
        write_manifest(path, dataclasses.replace(manifest, page_table=seal_whole(path, manifest.page_table.name)))
        with pytest.raises(CorruptRelation, match="is not a page table"):
            Relation.open(path).table  # noqa: B018


def test_a_page_that_announces_more_bytes_than_it_has_is_refused(tmp_path):
    path = Relation.build(TABLE.drop_columns(["tags"]), tmp_path / "flat", key="k", page_bytes=2048).path
    page = _page(path)
    body = len(page) - 8 - int.from_bytes(page[4:8], "little")
    length = body.to_bytes(8, "little")
    assert page[:64].count(length) == 1
    forge(path, lambda page: page.replace(length, (body + 480).to_bytes(8, "little")), 0)
    with pytest.raises(CorruptRelation, match="is not a page of this relation"):
        Relation.open(path).scan().read_all()


def _page(path: Path) -> bytes:
    relation = Relation.open(path)
    (segment,) = relation.table.segments
    begin = int(segment.offset[0])
    return (path / relation.manifest.files[0].name).read_bytes()[begin : begin + int(segment.nbytes[0])]


def test_rows_with_a_null_key_are_validated_before_they_are_read(path):
    manifest = Relation.open(path).manifest
    (null_file,) = manifest.null_files
    (path / null_file.name).write_bytes(ipc(pa.table({"k": [None]})))
    write_manifest(path, dataclasses.replace(manifest, null_files=(seal_whole(path, null_file.name),)))
    with pytest.raises(CorruptRelation, match="it has the columns"):
        Relation.open(path).scan().read_all()


@pytest.mark.parametrize("content", [b"", b"ARROW1", beyond(), beyond()[:-40], ipc(pa.table({"k": ["x"]}))])
def test_arrow_files_of_a_relation_do_not_lead_out_of_themselves(tmp_path, content):
    file = sealed(tmp_path, content)
    with pytest.raises(CorruptRelation, match=r"cannot be read|is empty"):
        list(sound_batches(tmp_path / file.name, SCHEMA))
    with pytest.raises(CorruptRelation):
        read_changes(tmp_path, file)


def test_codes_that_an_update_touched_are_read_as_written(tmp_path):
    file = sealed(tmp_path, ipc(pa.table({"code": pa.array([1, 5, 9], pa.int64())})))
    assert read_changes(tmp_path, file).tolist() == [1, 5, 9]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", b""), ("a.csv", b"k,text\n1\n2,3,4\n"), ("a.parquet", b"PAR1xxxxPAR1"),
        ("a.arrow", beyond()), ("a.arrow", b"ARROW1"), ("a.feather", b""),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_a_source_is_named(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(RelationError, match=rf"{name} cannot be read: "):
        open_source(tmp_path / name).read_all()
    with pytest.raises(RelationError, match=rf"{name} cannot be read: "):
        Relation.build(tmp_path / name, tmp_path / "r", key="k")
    assert not (tmp_path / "r" / "CURRENT").exists()


def test_a_parquet_file_of_types_that_arrow_lacks_goes_to_the_quarantine(tmp_path):
    pq.write_table(pa.table({"k": pa.array([1], pa.int8())}), tmp_path / "a.parquet")
    content = (tmp_path / "a.parquet").read_bytes()
    strange = content.replace(b"\x4c\x5c\x13\x08\x11", b"\x4c\x5c\x13\x06\x11")  # an integer of 3 bits
    for each in (strange, content[:-9] + b"\xff" * 5 + content[-4:]):
        (tmp_path / "a.parquet").write_bytes(each)
        found = parquet_inputs([str(tmp_path / "a.parquet")], pa.schema([("k", pa.int64())]), 1, stop=False)
        assert found.splits[0].reason is None or "cannot be read" in found.splits[0].reason
