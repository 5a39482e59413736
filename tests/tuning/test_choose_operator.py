"""operator="auto": the fastest in the memory by the models, or the engine if it is about as fast."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import semistream
from semistream import EngineJoin, HybridJoin, IndexNestedLoopJoin, MeshJoin, ParquetRelation, Relation, SweepJoin
from semistream.costs.machine import DEFAULT_MACHINE, Machine, OperatorCosts
from semistream.costs.profiles import save_profile
from semistream.datasets import Zipf
from semistream.errors import BudgetError, InvalidArgument
from semistream.joins.condition.spec import JoinSpec
from semistream.relation import AnyRelation, DiskCosts
from semistream.tuning.candidates import AKIN, OPERATORS, candidates, last_resorts
from semistream.tuning.choose_operator import choose_operator
from semistream.tuning.explain import workload_of
from semistream.tuning.tuner import CLEARLY, SURELY, Tuner

ROWS = 20_000
STREAM = pa.schema([("key", pa.int64()), ("seq", pa.int64())])
SLOW_DISK = Machine("slow", DiskCosts(0.008, transfer_s_per_byte=1 / 120e6))
NO_DISK = DiskCosts(0.0)


@pytest.fixture(autouse=True)
def no_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEMISTREAM_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def relation(tmp_path_factory: pytest.TempPathFactory) -> Relation:
    path: Path = tmp_path_factory.mktemp("choice") / "r"
    columns = {f"c{i}": np.arange(ROWS) for i in range(8)}
    return Relation.build(pa.table({"key": range(ROWS), **columns}), path, key="key", page_bytes=4096)


def spec_of(relation: AnyRelation, on: str | None = "key", where: str | None = None) -> JoinSpec:
    return JoinSpec.of(relation, STREAM, on=on, where=where)


def with_costs(**seconds: float) -> Machine:
    """A machine on which some operators take so long for a tuple, and all others a second, whatever they read."""
    taken = {name: OperatorCosts(tuple_s=seconds.get(name, 1.0), hit_s=1.0) for name in OPERATORS}
    return Machine("made up", NO_DISK, operators=taken)


@pytest.mark.parametrize("machine", [DEFAULT_MACHINE, SLOW_DISK], ids=lambda machine: machine.name)
@pytest.mark.parametrize("share", [0.06, 0.15, 0.6])
@pytest.mark.parametrize("exponent", [0.0, 1.3])
def test_auto_is_what_the_tuner_expects_to_be_fastest(
    relation: Relation, machine: Machine, share: float, exponent: float
) -> None:
    sample = next(Zipf(exponent, ROWS, seed=1).batches(30_000))
    spec, memory = spec_of(relation), int(share * relation.nbytes)
    chosen = choose_operator("auto", relation, spec, memory, sample=sample, machine=machine).kind
    ready = [kind for name, kind in OPERATORS.items() if name not in last_resorts(relation)]
    tuner = Tuner(workload_of(relation, spec, sample), machine, candidates(relation, spec, sample, ready))
    choices = tuner.choices(memory)
    rates = {choice.operator: choice.rate for choice in choices}
    assert chosen.name in rates
    assert rates[chosen.name] >= choices[0].rate / SURELY
    assert rates[chosen.name] >= max(rates.get(name, 0.0) for name in AKIN) / CLEARLY


@pytest.mark.parametrize(("engine_s", "chosen"), [(1.4e-6, EngineJoin), (1.6e-6, HybridJoin), (0.5e-6, EngineJoin)])
def test_the_engine_is_preferred_if_no_other_is_clearly_faster(
    relation: Relation, engine_s: float, chosen: type[semistream.SemiStreamJoin]
) -> None:
    machine = with_costs(engine=engine_s, hybrid=1e-6)
    assert choose_operator("auto", relation, spec_of(relation), relation.nbytes // 2, machine=machine).kind is chosen


def test_the_profile_of_this_machine_decides(relation: Relation) -> None:
    save_profile(with_costs(mesh=1e-6), relation.path)
    assert choose_operator("auto", relation, spec_of(relation), relation.nbytes // 2).kind is MeshJoin


def test_a_memory_too_small_for_the_engine_goes_to_an_operator_that_fits(relation: Relation) -> None:
    spec = spec_of(relation)
    least = {each.name: least_of(each.kind, relation, spec) for each in candidates(relation, spec)}
    small = min(least, key=lambda name: least[name])
    assert least[small] < least["engine"]
    chosen = choose_operator("auto", relation, spec, least["engine"] - 1).kind
    assert least[chosen.name] < least["engine"]
    assert choose_operator("auto", relation, spec, least[small]).kind.name == small
    orders = pa.table({"key": [5, 7, ROWS], "seq": [1, 2, 3]})
    joined = semistream.join(orders, relation, on="key", memory=least[small])
    assert joined.explain().startswith(f"{small} join")
    assert sorted(joined.read_all().column("c3").to_pylist()) == [5, 7]


def least_of(kind: type[semistream.SemiStreamJoin], relation: Relation, spec: JoinSpec) -> int:
    with pytest.raises(BudgetError) as refused:
        kind(relation, spec.stream_schema, on="key", memory=1)
    assert refused.value.least_bytes is not None
    return refused.value.least_bytes


def test_a_memory_too_small_for_all_is_left_to_the_engine_to_refuse(relation: Relation) -> None:
    assert choose_operator("auto", relation, spec_of(relation), 1000).kind is EngineJoin
    with pytest.raises(BudgetError, match=r"engine join .* needs at least"):
        semistream.join(pa.table({"key": [1], "seq": [1]}), relation, on="key", memory=1000)


def test_ranges_of_the_key_are_swept_and_other_conditions_scanned(relation: Relation) -> None:
    memory = relation.nbytes
    assert choose_operator("auto", relation, spec_of(relation, None, "s.seq <= r.key"), memory).kind is SweepJoin
    assert choose_operator("auto", relation, spec_of(relation, None, "s.seq = r.c1"), memory).kind is MeshJoin


def test_plain_parquet_is_scanned(tmp_path: Path) -> None:
    pq.write_table(pa.table({"key": range(100)}), tmp_path / "r.parquet")
    parquet = ParquetRelation.open(tmp_path / "r.parquet")
    assert choose_operator("auto", parquet, spec_of(parquet), 10**7).kind is MeshJoin


def test_an_empty_relation_is_joined_by_the_engine(tmp_path: Path) -> None:
    empty = Relation.build(pa.table({"key": pa.array([], pa.int64())}), tmp_path / "r", key="key")
    assert choose_operator("auto", empty, spec_of(empty), 10**6).kind is EngineJoin


def test_an_operator_that_is_named_is_taken(relation: Relation) -> None:
    for name, kind in OPERATORS.items():
        assert choose_operator(name, relation, spec_of(relation), 1).kind is kind
        assert choose_operator(kind, relation, spec_of(relation), 1).kind is kind
    with pytest.raises(InvalidArgument, match="operator is 'fast'; give 'auto', 'engine'"):
        choose_operator("fast", relation, spec_of(relation), 1)


def test_an_empty_first_batch_says_nothing_of_the_keys(relation: Relation) -> None:
    nothing = pa.RecordBatch.from_pylist([], schema=STREAM)
    no_keys = pa.RecordBatch.from_pylist([{"key": None, "seq": 1}], schema=STREAM)
    memory = relation.nbytes // 5
    without = choose_operator("auto", relation, spec_of(relation), memory).kind
    for sample in (nothing, no_keys):
        assert choose_operator("auto", relation, spec_of(relation), memory, sample=sample).kind is without


def test_look_ups_are_a_choice_only_where_their_copy_of_r_is_there(
    relation: Relation, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A choice must not start to copy R, which may take long, and as much room again."""
    copy = Relation.build(relation.scan(), tmp_path / "r", key="key", page_bytes=4096)
    spec, machine = spec_of(copy), with_costs(nested_loop=1e-9)
    assert choose_operator("auto", copy, spec, copy.nbytes, machine=machine).kind is EngineJoin
    assert not caplog.records
    least = least_of(IndexNestedLoopJoin, copy, spec)
    assert choose_operator("auto", copy, spec, least, machine=machine).kind is IndexNestedLoopJoin  # there is no other
    assert "copies" in caplog.text
    assert not (copy.path / "lmdb").exists()
    with IndexNestedLoopJoin(copy, STREAM, on="key", memory=copy.nbytes):
        pass
    assert choose_operator("auto", copy, spec, copy.nbytes, machine=machine).kind is IndexNestedLoopJoin
