"""Pages, page tables and manifests made to be harmful, with checksums that fit: refused, or harmless."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash

import semistream
from semistream.errors import CorruptRelation, SemistreamError
from semistream.relation import Relation
from semistream.relation.format.manifest import manifest_name, write_manifest
from semistream.relation.format.page_table import PageTable, SegmentTable
from semistream.relation.write.version_draft import seal_whole
from tests.relation.child_process import run_child

ROWS = 300
TABLE = pa.table(
    {
        "k": pa.array(range(ROWS)),
        "text": [None if i % 7 == 0 else "x" * (i % 23) for i in range(ROWS)],
        "flag": [i % 3 == 0 for i in range(ROWS)],
        "price": pa.array([i if i % 5 else None for i in range(ROWS)], pa.decimal128(10, 2)),
        "tags": [["a"] * (i % 4) for i in range(ROWS)],
        "none": pa.nulls(ROWS),
    }
)
STREAM = pa.table({"s": range(-5, ROWS + 5)})


def forge(path: Path, mutate: Any, page: int) -> None:
    """Change the bytes of a page, and all checksums on the way to it."""
    relation = Relation.open(path)
    table, manifest = relation.table, relation.manifest
    (segment,) = table.segments
    begin, nbytes = int(segment.offset[page]), int(segment.nbytes[page])
    file = path / manifest.files[int(table.file[page])].name
    content = bytearray(file.read_bytes())
    content[begin : begin + nbytes] = mutate(bytearray(content[begin : begin + nbytes]))
    file.write_bytes(content)
    sums = segment.checksum.copy()
    sums[page] = xxhash.xxh64_intdigest(bytes(content[begin : begin + nbytes]))
    put_table(path, dataclasses.replace(table, segments=(dataclasses.replace(segment, checksum=sums),)))


def put_table(path: Path, table: PageTable) -> None:
    manifest = Relation.open(path).manifest
    stored = table.to_arrow()
    name = str(path / manifest.page_table.name)
    with pa.OSFile(name, "wb") as sink, pa.ipc.new_file(sink, stored.schema) as writer:
        writer.write_table(stored)
    write_manifest(path, dataclasses.replace(manifest, page_table=seal_whole(path, manifest.page_table.name)))


def use(path: Path) -> None:
    """Read all of the relation in every way: as a scan, by key, and by operators with and without an index."""
    relation = Relation.open(path)
    relation.scan().read_all().validate(full=True)
    Relation.open(path).lookup([1, 50, 200])
    for operator in ("engine", "index", "mesh"):
        joined = semistream.join(STREAM, Relation.open(path), on={"s": "k"}, operator=operator, memory="4MB")
        joined.read_all().validate(full=True)


def _randomly(rng: np.random.Generator, metadata: int) -> Any:
    """Return a change of a few bytes, most of them in the page's metadata, to values that tend to do harm."""

    def mutate(page: bytearray) -> bytearray:
        for _ in range(int(rng.integers(1, 4))):
            end = metadata if rng.random() < 0.8 else len(page)
            at = int(rng.integers(0, end))
            size = int(rng.choice([1, 2, 4, 8]))
            value = int(rng.choice([0, 1, 2, 7, 0x7F, 0x80, 0xFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 2**63 - 1]))
            if rng.random() < 0.3:
                value = int(rng.integers(0, 2**32))
            put = (value % 2 ** (8 * size)).to_bytes(size, "little")
            page[at : at + size] = put[: len(page) - at]
        return page

    return mutate


def _try_crafted(path: Path, seeds: range) -> dict[str, int]:
    """Use the relation with one crafted page after another; count the outcomes."""
    outcomes: dict[str, int] = {}
    for seed in seeds:
        rng = np.random.default_rng(seed)
        copy = path.parent / f"copy-{seed}"
        shutil.copytree(path, copy)
        pages = len(Relation.open(copy).table)
        forge(copy, _randomly(rng, metadata=560), int(rng.integers(0, pages)))
        try:
            use(copy)
            outcome = "read"
        except SemistreamError as error:
            outcome = type(error).__name__
        except Exception as error:
            outcome = f"{seed}: {type(error).__name__}: {error}"
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
        shutil.rmtree(copy)
    return outcomes


@pytest.fixture
def relation(tmp_path: Path) -> Relation:
    return Relation.build(TABLE, tmp_path / "r", key="k", page_bytes=4096)


def test_crafted_pages_are_refused_or_harmless(relation: Relation) -> None:
    code, outcomes = run_child(_try_crafted, relation.path, range(60))
    assert code == 0  # a negative code is the signal of a crash
    assert set(outcomes) == {"read", "CorruptRelation"}
    assert outcomes["CorruptRelation"] > 20


def test_offsets_that_lead_out_of_the_page_are_refused(relation: Relation) -> None:
    column = next(column for column in relation.layout.columns if column.name == "text")
    (run,) = list(relation.read_pages(np.array([0])))
    at = int(run.positions[0, column.first_buffer + 1] - run.starts[0, 0])

    def far(page: bytearray) -> bytearray:
        page[at + 8 : at + 12] = (1 << 30).to_bytes(4, "little")
        return page

    forge(relation.path, far, 0)
    with pytest.raises(CorruptRelation, match=r"page 0 .* is not a page of this relation"):
        use(relation.path)


@pytest.mark.parametrize(
    ("name", "value"),
    [("offset", 1 << 40), ("offset", -8), ("nbytes", -1), ("nbytes", 1 << 40), ("file", 7), ("file", -1), ("rows", -3)],
)
def test_page_tables_that_lead_out_of_the_files_are_refused(relation: Relation, name: str, value: int) -> None:
    table = relation.table
    owner = table.segments[0] if name in {"offset", "nbytes"} else table
    values = getattr(owner, name).copy()
    values[1] = value
    if isinstance(owner, SegmentTable):
        put_table(relation.path, dataclasses.replace(table, segments=(dataclasses.replace(owner, **{name: values}),)))
    else:
        put_table(relation.path, dataclasses.replace(table, **{name: values}))
    with pytest.raises(CorruptRelation, match="is not a page table"):
        Relation.open(relation.path)


@pytest.mark.parametrize(
    "name", ["../secret.arrow", "/etc/passwd", "data/../../secret", "data/a/b.arrow", "", "data/", "data/..", "data/.x"]
)
def test_names_that_lead_out_of_the_folder_are_refused(relation: Relation, name: str) -> None:
    manifest = relation.manifest
    write_manifest(
        relation.path,
        dataclasses.replace(manifest, files=(dataclasses.replace(manifest.files[0], name=name),)),
    )
    with pytest.raises(CorruptRelation, match="files of a relation are in its folders data and versions"):
        Relation.open(relation.path)


def test_a_manifest_of_another_version_is_not_read_as_this_one(relation: Relation) -> None:
    later = relation.update(deletes=[1])
    shutil.copy(relation.path / manifest_name(1), relation.path / manifest_name(2))
    with pytest.raises(CorruptRelation, match=r"000002\.json is the manifest of version 1, not of version 2"):
        Relation.open(later.path)


@pytest.mark.parametrize(
    "change",
    [
        {"schema_bytes": "AAAA"},
        {"key": ["nothing"]},
        {"key": []},
        {"num_rows": -1},
        {"page_bytes": "many"},
        {"files": [{"name": "data/x"}]},
        {"files": 5},
        {"page_table": None},
        {"transactions": {"w": 5}},
        {"column_groups": [["k"], ["text"]]},
        {"version": "1"},
        {"surplus": 1},
    ],
    ids=str,
)
def test_manifests_with_other_content_are_refused(relation: Relation, change: dict[str, Any]) -> None:
    path = relation.path / manifest_name(1)
    record = json.loads(path.read_text())
    body = json.dumps(json.loads(record["manifest"]) | change)
    path.write_text(json.dumps({**record, "manifest": body, "checksum": xxhash.xxh64_hexdigest(body.encode())}))
    with pytest.raises(CorruptRelation, match=r"000001\.json is"):
        Relation.open(relation.path)
