"""Each check of the conformance suite fails on an operator that breaks what it guards: none is vacuous."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from semistream import MemoryBudget, MeshJoin
from semistream.joins.mesh.window import StreamWindow
from semistream.joins.parts import sorted_codes as sorted_ranges
from semistream.joins.parts.emitter import Emitter
from semistream.joins.parts.intake import Intake
from semistream.joins.parts.stats import JoinStats
from tests.joins.cases import Case
from tests.joins.conformance import checks
from tests.joins.conformance.operators import Maker
from tests.joins.conformance.test_conformance import plain_case

BROKEN = Maker(MeshJoin, {"pages_per_step": 2})
Check = Callable[[Case], None]


def exact(case: Case) -> None:
    with case.built() as relation:
        checks.check_equals_the_batch_join(BROKEN, case, relation, "1MB")


def in_budget(case: Case) -> None:
    with case.built() as relation:
        checks.check_holds_the_budget(BROKEN, case, relation, 10**6)


def counted(case: Case) -> None:
    with case.built() as relation:
        checks.check_stats_add_up(BROKEN, case, relation)


def reusable(case: Case) -> None:
    with case.built() as relation:
        checks.check_works_after_flush(BROKEN, case, relation)


def harmless(case: Case) -> None:
    with case.built() as relation:
        checks.check_leaves_its_input_alone(BROKEN, case, relation)


def repeatable(case: Case) -> None:
    with case.built() as relation:
        checks.check_is_deterministic(BROKEN, case, relation)


def tidy(case: Case) -> None:
    with case.built() as relation:
        checks.check_leaves_no_thread_and_no_file(BROKEN, case, relation)


def test_the_unbroken_operator_passes_them_all() -> None:
    for check in (exact, in_budget, counted, reusable, harmless, repeatable, tidy):
        check(plain_case("left"))


def _fails(check: Check, how: str = "inner") -> None:
    with pytest.raises(AssertionError):
        check(plain_case(how))


def test_a_dropped_last_batch_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    flush = MeshJoin.drain
    monkeypatch.setattr(MeshJoin, "drain", lambda self: iter(list(flush(self))[:-1]))
    _fails(exact)


def test_a_duplicate_key_joined_once_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Emitter.stage

    def once(self, stream, positions, run, page, row):
        _, first = np.unique(positions, return_index=True)
        return stage(self, stream, positions[first], run, page[first], row[first])

    monkeypatch.setattr(Emitter, "stage", once)
    _fails(exact)


def test_expiry_before_the_last_page_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    admit = StreamWindow.admit
    monkeypatch.setattr(StreamWindow, "admit", lambda self, tuples, entered: admit(self, tuples, entered - 1))
    _fails(exact)


def test_expiry_after_the_first_page_again_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    admit = StreamWindow.admit
    monkeypatch.setattr(StreamWindow, "admit", lambda self, tuples, entered: admit(self, tuples, entered + 1))
    _fails(exact)


def test_a_forgotten_partner_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StreamWindow, "mark", lambda self, tuples: None)
    for how in ("left", "semi", "anti"):
        _fails(exact, how)
    _fails(counted)


def test_tuples_lost_when_levels_are_merged_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    merge = sorted_ranges.merge_sorted

    def forgetful(*levels):
        codes, tuples = merge(*levels)
        return codes[1:], tuples[1:]

    monkeypatch.setattr(sorted_ranges, "merge_sorted", forgetful)
    _fails(exact)


def test_expired_tuples_that_still_match_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    expire = StreamWindow.expire

    def undead(self):
        found = expire(self)
        for level in self._levels:
            level.first = self._first
        return found

    monkeypatch.setattr(StreamWindow, "expire", undead)
    case = plain_case()
    with case.built() as relation, pytest.raises((AssertionError, ValueError, IndexError)):
        checks.check_any_interleaving_of_steps(BROKEN, case, relation, [7])


def test_null_keys_that_match_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    admit = Intake.admit

    def blind(self, batch, start, room):
        taken = admit(self, batch, start, room)
        return taken and replace(taken, ranges=replace(taken.ranges, possible=None))

    monkeypatch.setattr(Intake, "admit", blind)
    relation = pa.table({"k": [0, 0, 1], "v": [1, 2, 3]})
    stream = pa.table({"s": pa.array([None, 0, None], pa.int64())})
    case = Case(relation, ("k",), tuple(stream.to_batches()), stream.schema, {"s": "k"}, "inner")
    with pytest.raises(AssertionError):
        exact(case)


def test_uncharged_output_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    charge, release = MemoryBudget.charge, MemoryBudget.release
    monkeypatch.setattr(MemoryBudget, "charge", lambda self, name, n: charge(self, name, 0 if name == "output" else n))
    monkeypatch.setattr(
        MemoryBudget, "release", lambda self, name, n: release(self, name, 0 if name == "output" else n)
    )
    _fails(in_budget)


def test_tuples_that_are_never_released_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Intake, "release", lambda self, sizes: None)
    _fails(in_budget)


def test_wrong_counts_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    count = JoinStats.count_done
    monkeypatch.setattr(JoinStats, "count_done", lambda self, matched: count(self, ~matched))
    _fails(counted)


def test_a_changed_input_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    push = MeshJoin.feed

    def scribble(self, batch):
        values = np.frombuffer(batch.column(0).buffers()[1], np.int64)
        values.flags.writeable = True
        values[0] += 1
        return push(self, batch)

    monkeypatch.setattr(MeshJoin, "feed", scribble)
    with plain_case().built() as relation, pytest.raises((AssertionError, ValueError)):
        checks.check_leaves_its_input_alone(BROKEN, plain_case(), relation)


def test_results_that_depend_on_chance_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(7)
    flush = MeshJoin.drain
    monkeypatch.setattr(
        MeshJoin, "drain", lambda self: (b.take(pa.array(generator.permutation(b.num_rows))) for b in flush(self))
    )
    _fails(repeatable)


def test_a_thread_that_lives_on_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    close = MeshJoin.close
    left_open = []

    def forget(self):
        left_open.append(self)

    monkeypatch.setattr(MeshJoin, "close", forget)
    _fails(tidy)
    for operator in left_open:
        close(operator)
