"""Changes numbered by a writer: each is applied once, to the current version, despite other writers."""

import pyarrow as pa
import pytest

from semistream.errors import InvalidArgument
from semistream.relation import Change, Relation, Transaction


@pytest.fixture
def relation(tmp_path):
    return Relation.build(pa.table({"k": [1, 2], "v": ["a", "b"]}), tmp_path / "r", key="k")


def rows(relation):
    return sorted((row["k"], row["v"]) for row in relation.scan().read_all().to_pylist())


def test_a_transaction_is_made_once(relation):
    calls = []

    def change(current):
        calls.append(current.version)
        return Change(upserts=pa.table({"k": [3], "v": ["c"]}))

    first = relation.change(change, Transaction("orders", 7))
    again = relation.change(change, Transaction("orders", 7))
    older = relation.change(change, Transaction("orders", 6))
    assert (first.version, again.version, older.version, calls) == (2, 2, 2, [1])
    assert rows(again) == [(1, "a"), (2, "b"), (3, "c")]
    assert again.made_by(Transaction("orders", 7)) == 2
    assert again.made_by(Transaction("orders", 8)) is None


def test_writers_are_told_apart_and_outlive_other_updates(relation):
    relation.change(lambda _: Change(deletes=[1]), Transaction("orders", 1))
    relation.update(upserts=pa.table({"k": [9], "v": ["x"]}))
    after = relation.change(lambda _: Change(deletes=[2]), Transaction("returns", 1))
    assert rows(after) == [(9, "x")]
    assert after.made_by(Transaction("orders", 1)) == 2
    assert after.made_by(Transaction("returns", 1)) == 4


def test_a_change_is_made_of_the_current_version_not_of_the_one_at_hand(relation):
    relation.update(upserts=pa.table({"k": [5], "v": ["e"]}))
    seen = []
    relation.change(lambda current: seen.append(rows(current)) or Change(deletes=[5]), Transaction("w", 1))
    assert seen == [[(1, "a"), (2, "b"), (5, "e")]]


def test_counters_are_kept_with_the_version_that_set_them(relation):
    first = relation.change(lambda _: Change(deletes=[1], counters={"next": 10}), Transaction("w", 1))
    second = relation.update(deletes=[2])
    assert relation.manifest.counters == {}
    assert first.manifest.counters == second.manifest.counters == {"next": 10}


def test_a_change_that_fails_leaves_nothing(relation, tmp_path):
    before = sorted(path.name for path in (tmp_path / "r").rglob("*"))

    def fails(current):
        raise InvalidArgument("no")

    with pytest.raises(InvalidArgument):
        relation.change(fails, Transaction("w", 1))
    assert sorted(path.name for path in (tmp_path / "r").rglob("*")) == before
    assert Relation.open(tmp_path / "r").made_by(Transaction("w", 1)) is None


def test_a_change_without_rows_still_counts(relation):
    after = relation.change(lambda _: Change(), Transaction("w", 1))
    assert after.made_by(Transaction("w", 1)) == 2
    assert rows(after) == rows(relation)
