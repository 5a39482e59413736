"""Changes between versions: every touched key, and the new place of each page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.errors import InvalidArgument
from semistream.relation import Relation, changes
from semistream.relation.format.manifest import manifest_name
from tests.relation.row_sets import row_set, scratch_folder
from tests.relation.test_update_model import KINDS, Change, histories, key_table, row_table


def _codes(relation: Relation, keys: list[tuple[Any, ...]], kind: str) -> set[int]:
    table = key_table([key for key in keys if None not in key], KINDS[kind][0])
    codes, _ = relation.codec.encode([table.column(name).combine_chunks() for name in relation.key])
    return set(codes.tolist())


def _messages(relation: Relation) -> list[bytes]:
    """The bytes of every page."""
    runs = relation.read_pages(np.arange(relation.num_pages))
    return [bytes(run.message(i)) for run in runs for i in range(run.pages.size)]


def _check_mapping(older: Relation, newer: Relation) -> None:
    kept = newer.pages_kept_from(older)
    assert kept.shape == (older.num_pages,)
    places = [
        [(r.data_files[f], o) for f, o in zip(r.table.file.tolist(), r.table.offset.tolist(), strict=True)]
        for r in (older, newer)
    ]
    expected = [places[1].index(place) if place in places[1] else -1 for place in places[0]]
    assert kept.tolist() == expected
    old_bytes, new_bytes = _messages(older), _messages(newer)
    assert all(old_bytes[i] == new_bytes[page] for i, page in enumerate(kept.tolist()) if page >= 0)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(histories(), st.sampled_from([600, 1024]), st.data())
def test_changes_are_the_keys_given_and_pages_are_found_again(
    history: tuple[str, list[tuple[tuple[Any, ...], int]], list[Change]], page_bytes: int, data: st.DataObject
) -> None:
    kind, first, updates = history
    key, _ = KINDS[kind]
    names = [name for name, _ in key]
    with scratch_folder() as folder:
        versions = [Relation.build(row_table(first, key), folder / "r", key=names, page_bytes=page_bytes)]
        touched: list[set[int]] = []
        for upserts, deletes in updates:
            versions.append(
                versions[-1].update(
                    upserts=row_table(upserts, key) if upserts else None, deletes=key_table(deletes, key)
                )
            )
            touched.append(_codes(versions[0], [k for k, _ in upserts] + deletes, kind))
        every = sorted(
            {k for k, _ in first} | {k for change in updates for k in [*change[1], *(u[0] for u in change[0])]},
            key=repr,
        )
        for a, b in combinations(range(len(versions)), 2):
            older, newer = versions[a], versions[b]
            found = newer.changes_since(older.version)
            assert found is not None
            assert found.dtype == np.int64
            assert found.tolist() == sorted(set().union(*touched[a:b]))
            untouched = [k for k in every if None not in k and not _codes(newer, [k], kind) & set(found.tolist())]
            asked = key_table(untouched, key)
            assert row_set(older.lookup(asked)) == row_set(newer.lookup(asked))
            _check_mapping(older, newer)
            codes = newer.table.first_code.tolist()
            if codes:
                begin, end = (data.draw(st.sampled_from([None, *codes])) for _ in range(2))
                _check_mapping(older.part(begin), newer.part(None, end))
                assert newer.part(begin, end).changes_since(older.version).tolist() == found.tolist()  # type: ignore[union-attr]
        assert all(version.changes_since(version.version).tolist() == [] for version in versions)  # type: ignore[union-attr]
        assert versions[0].changes_since(0) is None


@pytest.fixture
def relation() -> Iterator[Relation]:
    """Version 5; versions 2 to 5 have touched a key each."""
    with scratch_folder() as folder:
        relation = Relation.build(pa.table({"k": np.arange(1000)}), folder / "r", key="k", page_bytes=1024)
        for key in (100, 300, 300, 700):
            relation = relation.update(deletes=[key])
        yield relation


def _since(relation: Relation, version: int, **options: Any) -> list[int] | None:
    found = relation.changes_since(version, **options)
    return None if found is None else found.tolist()


def test_vacuumed_versions_leave_changes_unknown(relation: Relation) -> None:
    stale = Relation.open(relation.path, version=3)
    assert [_since(relation, v) for v in range(1, 6)] == [[100, 300, 700], [300, 700], [300, 700], [700], []]
    relation.vacuum(keep=2)
    assert [_since(relation, v) for v in range(-1, 6)] == [None, None, None, None, [300, 700], [700], []]
    relation.vacuum()
    assert [_since(relation, v) for v in range(1, 6)] == [None, None, None, [700], []]
    assert [_since(stale, v) for v in (1, 2, 3)] == [None, None, []]


def test_version_vacuumed_while_it_is_read_leaves_changes_unknown(
    relation: Relation, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = changes.read_manifest

    def vacuumed_meanwhile(*args: Any) -> Any:
        manifest = real(*args)
        relation.vacuum()
        return manifest

    monkeypatch.setattr(changes, "read_manifest", vacuumed_meanwhile)
    assert _since(relation, 3) is None


def test_relation_built_anew_has_unknown_changes_and_no_page_of_the_old_one(relation: Relation) -> None:
    rebuilt = Relation.build(relation.scan().read_all(), relation.path, key="k", page_bytes=1024, overwrite=True)
    assert (_since(rebuilt, 5), _since(rebuilt, 6)) == (None, [])
    assert (rebuilt.pages_kept_from(relation) == -1).all()
    updated = rebuilt.update(deletes=[5])
    assert (_since(updated, 5), _since(updated, 6)) == (None, [5])


def test_newer_version_is_asked_not_the_older_one(relation: Relation) -> None:
    with pytest.raises(InvalidArgument, match="version 5 is newer than the open version 2"):
        Relation.open(relation.path, version=2).changes_since(5)


def test_changes_that_take_too_much_memory_are_left_unread(relation: Relation) -> None:
    updated = relation.update(deletes=list(range(2000, 12_000)))
    assert _since(updated, 5, most_bytes=100_000) is None
    assert _since(updated, 5, most_bytes=1_000_000) == list(range(2000, 12_000))
    assert _since(updated, 6, most_bytes=0) == []


def test_manifest_from_before_there_were_changes_still_opens(relation: Relation) -> None:
    path = relation.path / manifest_name(4)
    record = json.loads(path.read_text())
    body = json.loads(record["manifest"])
    del body["changes"]
    record["manifest"] = json.dumps(body)
    record["checksum"] = xxhash.xxh64_hexdigest(record["manifest"].encode())
    path.write_text(json.dumps(record))
    old = Relation.open(relation.path, version=4)
    assert old.verify().rows == 998
    assert [_since(old, v) for v in (2, 3, 4)] == [None, None, []]
    assert [_since(relation, v) for v in (2, 3, 4)] == [None, None, [700]]
    assert (relation.pages_kept_from(old) >= 0).sum() == relation.num_pages - 1


def test_pages_of_an_emptied_relation_are_all_gone(relation: Relation) -> None:
    empty = relation.update(deletes=pa.array(np.arange(1000)))
    assert empty.pages_kept_from(relation).tolist() == [-1] * relation.num_pages
    assert relation.pages_kept_from(empty).tolist() == []
    assert relation.pages_kept_from(relation).tolist() == list(range(relation.num_pages))
