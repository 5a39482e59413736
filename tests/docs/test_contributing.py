"""The toy operator of CONTRIBUTING.md passes the conformance checks exactly as it stands there."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from semistream import MemoryBudget
from semistream.costs.key_frequencies import KeyFrequencies
from semistream.costs.machine import DEFAULT_MACHINE
from semistream.costs.prediction import predict
from semistream.joins.condition.spec import join_workload
from semistream.joins.join_facts import JoinFacts
from tests.joins.cases import Case, cases
from tests.joins.conformance import checks
from tests.joins.conformance.operators import Maker
from tests.joins.conformance.test_conformance import plain_case

TEXT = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()


@pytest.fixture(scope="module")
def toy() -> Maker:
    (source,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    module = ModuleType("toy_operator")
    sys.modules["toy_operator"] = module
    exec(compile(source, "CONTRIBUTING.md", "exec"), module.__dict__)
    return Maker(module.ScanJoin)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(case=cases(), extra=st.sampled_from([0, 777, 100_000]), steps=st.lists(st.integers(0, 3), max_size=3))
def test_the_toy_operator_is_exact_and_holds_its_budget(toy: Maker, case: Case, extra: int, steps: list[int]) -> None:
    with case.built() as relation:
        memory = toy.least_memory(relation, case) + extra
        checks.check_equals_the_batch_join(toy, case, relation, memory)
        checks.check_holds_the_budget(toy, case, relation, memory)
        checks.check_any_interleaving_of_steps(toy, case, relation, steps)


def test_the_toy_operator_passes_the_other_checks(toy: Maker) -> None:
    case = plain_case(rows=600, stream_rows=500)
    with case.built() as relation:
        for check in (
            checks.check_refuses_less_than_the_least,
            checks.check_stats_add_up,
            checks.check_works_after_flush,
            checks.check_is_deterministic,
            checks.check_leaves_its_input_alone,
            checks.check_wants_its_results_consumed,
            checks.check_leaves_no_thread_and_no_file,
        ):
            check(toy, case, relation)


def test_its_model_knows_the_pages_that_it_reads(toy: Maker) -> None:
    case = plain_case()
    with case.built() as relation, toy.make(relation, case, 40_000) as operator:
        checks.run(operator, case.batches)
        model = toy.kind.model(JoinFacts(operator.relation, operator.spec), MemoryBudget(40_000))  # type: ignore[attr-defined]
        workload = join_workload(operator.relation, operator.spec, KeyFrequencies.zipf(0.0, relation.num_rows))
        expected = predict("scan", model, workload, DEFAULT_MACHINE, memory_bytes=1).work.pages
        assert operator.stats.pages_read == pytest.approx(expected * operator.stats.rows_in, rel=0.3)


def test_files_that_are_named_exist() -> None:
    root = Path(__file__).parents[2]
    named = re.findall(r"`((?:src|tests|docs)/[\w/]+\.(?:py|md))`", TEXT)
    assert len(named) >= 8
    made = {"src/semistream/joins/scan/operator.py"}
    assert not [name for name in named if name not in made and not (root / name).exists()]
