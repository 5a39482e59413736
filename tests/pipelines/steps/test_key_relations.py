"""Surrogate keys and seen keys: each is decided once, despite retries and shared relations."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.errors import PipelineError, RelationLocked
from semistream.pipelines.ledger.entries import WaitingFile
from semistream.pipelines.plan.step_memory import share_steps
from semistream.pipelines.steps.duplicates import SeenKeys
from semistream.pipelines.steps.surrogate_keys import NUMBER, SurrogateKeys
from semistream.relation import Relation, Transaction
from semistream.storage import locks
from semistream.storage.locks import writer_lock
from tests.relation.child_process import run_child

KEY = pa.schema([("code", pa.string())])


def stalled(folder, *files):
    """Files of stalled rows with these keys."""
    described = []
    for i, keys in enumerate(files):
        pq.write_table(pa.table({"code": pa.array(keys, pa.string())}), folder / f"{i}.parquet")
        described.append(WaitingFile(f"{i}.parquet", len(keys), 0, "o", since=0.0))
    return described


def numbers(relation):
    return {row["code"]: row[NUMBER] for row in relation.scan().read_all().to_pylist()}


def flags(folder, names):
    return [pq.read_table(folder / name).column(0).to_pylist() for name in names]


def test_numbers_are_consecutive_from_one_in_the_order_of_the_keys(tmp_path):
    keys = SurrogateKeys(tmp_path / "r", KEY)
    files = stalled(tmp_path, ["c", "a", "c"], ["b"])
    assert numbers(keys.assign(tmp_path, files, ["code"], Transaction("p", 1))) == {"a": 1, "b": 2, "c": 3}
    files = stalled(tmp_path, ["b", "e", "d"])
    assert numbers(keys.assign(tmp_path, files, ["code"], Transaction("p", 2))) == {
        "a": 1, "b": 2, "c": 3, "d": 4, "e": 5,
    }  # fmt: skip


def test_a_transaction_that_is_tried_again_gives_the_same_numbers(tmp_path):
    files = stalled(tmp_path, ["b", "a"])
    first = SurrogateKeys(tmp_path / "r", KEY).assign(tmp_path, files, ["code"], Transaction("p", 1))
    other = SurrogateKeys(tmp_path / "r", KEY)
    other.assign(tmp_path, stalled(tmp_path, ["z"]), ["code"], Transaction("q", 1))
    again = SurrogateKeys(tmp_path / "r", KEY).assign(tmp_path, files, ["code"], Transaction("p", 1))
    assert again.version == first.version
    assert numbers(again) == {"a": 1, "b": 2}


def test_pipelines_that_share_a_relation_never_give_a_number_twice(tmp_path):
    one, two = SurrogateKeys(tmp_path / "r", KEY), SurrogateKeys(tmp_path / "r", KEY)
    one.assign(tmp_path, stalled(tmp_path, ["a", "b"]), ["code"], Transaction("one", 1))
    after = two.assign(tmp_path, stalled(tmp_path, ["b", "c"]), ["code"], Transaction("two", 1))
    assert numbers(after) == {"a": 1, "b": 2, "c": 3}


@pytest.mark.slow
@settings(deadline=None, max_examples=30)
@given(batches=st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=8), max_size=5))
def test_the_first_row_of_a_key_is_new_and_no_other(tmp_path_factory, batches):
    folder = tmp_path_factory.mktemp("seen")
    seen, known = SeenKeys(folder / "r", KEY), set()
    for number, keys in enumerate(batches, start=1):
        half = len(keys) // 2
        files = stalled(folder, keys[:half], keys[half:])
        _, names = seen.accept(folder, files, ["code"], Transaction("p", number), batch=number)
        expected = []
        for key in keys:
            expected.append(key not in known)
            known.add(key)
        assert flags(folder, names) == [expected[:half], expected[half:]]
        _, again = seen.accept(folder, files, ["code"], Transaction("p", number), batch=number)
        assert flags(folder, again) == [expected[:half], expected[half:]]


def test_two_pipelines_never_accept_the_same_key(tmp_path):
    one, two = SeenKeys(tmp_path / "r", KEY), SeenKeys(tmp_path / "r", KEY)
    _, first = one.accept(tmp_path, stalled(tmp_path, ["a"]), ["code"], Transaction("one", 1), batch=0)
    assert flags(tmp_path, first) == [[True]]
    _, second = two.accept(tmp_path, stalled(tmp_path, ["a", "b"]), ["code"], Transaction("two", 1), batch=0)
    assert flags(tmp_path, second) == [[False, True]]


def test_a_relation_of_something_else_is_refused(tmp_path):
    SurrogateKeys(tmp_path / "r", KEY)
    with pytest.raises(PipelineError, match="Give it another relation"):
        SeenKeys(tmp_path / "r", KEY)
    with pytest.raises(PipelineError, match="code string"):
        SurrogateKeys(tmp_path / "r", pa.schema([("code", pa.int64())]))


def test_pipelines_may_name_the_columns_of_a_shared_key_as_they_like(tmp_path):
    SurrogateKeys(tmp_path / "r", KEY).assign(tmp_path, stalled(tmp_path, ["a"]), ["code"], Transaction("one", 1))
    other = SurrogateKeys(tmp_path / "r", pa.schema([("sku", pa.string())]))
    pq.write_table(pa.table({"sku": ["b"]}), tmp_path / "x.parquet")
    after = other.assign(tmp_path, [WaitingFile("x.parquet", 1, 0, "o", 0.0)], ["sku"], Transaction("two", 1))
    assert numbers(after) == {"a": 1, "b": 2}


def test_another_writer_is_waited_for_and_not_for_ever(tmp_path, monkeypatch):
    keys = SurrogateKeys(tmp_path / "r", KEY)
    held = ExitStack()
    held.enter_context(writer_lock(tmp_path / "r"))
    timer = threading.Timer(0.3, held.close)
    timer.start()
    files = stalled(tmp_path, ["a"])
    assert numbers(keys.assign(tmp_path, files, ["code"], Transaction("p", 1))) == {"a": 1}
    timer.join()
    monkeypatch.setattr(locks, "WAIT_S", 0.2)
    with writer_lock(tmp_path / "r"), pytest.raises(RelationLocked, match=r"is being written by process \d+ still aft"):
        keys.assign(tmp_path, files, ["code"], Transaction("p", 2))


def make_keys(path):
    return SurrogateKeys(path, KEY).relation.version


def test_pipelines_that_create_one_relation_at_once_share_it(tmp_path):
    with ThreadPoolExecutor(4) as pool:
        for i in range(2):
            folder = tmp_path / str(i) / "keys"
            assert list(pool.map(lambda folder: run_child(make_keys, folder), [folder] * 4)) == [(0, 1)] * 4


def test_a_small_relation_leaves_memory_to_those_it_helps(tmp_path):
    sizes = {"stores": 19, "customers": 450, "products": 300_000}
    for name, rows in sizes.items():
        columns = {"id": np.arange(rows), "name": [f"{name} {i}" for i in range(rows)]}
        Relation.build(pa.table(columns), tmp_path / name, key="id")
    stores, customers, products = share_steps([tmp_path / name for name in sizes], 8_000_000)
    assert stores <= customers < products
    assert stores < 2_000_000
    assert products > 4_000_000
    alike = share_steps([tmp_path / "stores", tmp_path / "customers", tmp_path / "keys"], 32_000_000)
    assert alike[0] <= alike[1] < alike[2], "keys do not exist yet, and will be many"
    both = share_steps([tmp_path / "stores", tmp_path / "customers"], 32_000_000)
    assert both[0] <= both[1]
