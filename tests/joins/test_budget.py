"""The budget: the texts it reads, its refusals, and its limit, which it never exceeds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from semistream.budget import MemoryBudget, format_bytes, parse_bytes
from semistream.errors import BudgetError, BudgetExceeded


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        (1, 1),
        (10**15, 10**15),
        ("1", 1),
        ("512B", 512),
        ("64MB", 64 * 10**6),
        ("64mb", 64 * 10**6),
        (" 64 MB ", 64 * 10**6),
        ("64M", 64 * 10**6),
        ("1GiB", 2**30),
        ("1.5GiB", 3 * 2**29),
        ("2kB", 2000),
        ("2KiB", 2048),
        ("1TB", 10**12),
        ("1TiB", 2**40),
        ("0.5kb", 500),
    ],
)
def test_sizes_are_read(text: int | str, nbytes: int) -> None:
    assert parse_bytes(text) == nbytes
    assert MemoryBudget(text).limit == nbytes


def test_share_is_of_the_relation_and_rounds_down() -> None:
    assert parse_bytes("10%", of=5000) == 500
    assert parse_bytes("0.1%", of=9999) == 9
    assert parse_bytes("150%", of=100) == 150
    assert MemoryBudget("50%", of=7).limit == 3


@pytest.mark.parametrize("text", ["", "MB", "-1", "-1MB", "1 2", "1PB", "1e6", "10 %%", "ten", "1,5GB", "%", "0x10"])
def test_nonsense_is_refused_with_the_valid_values(text: str) -> None:
    with pytest.raises(BudgetError, match="64MB") as refused:
        parse_bytes(text)
    assert repr(text) in str(refused.value)


@pytest.mark.parametrize("value", [None, 1.5, True, b"64MB", ["64MB"]])
def test_other_types_are_refused(value: object) -> None:
    with pytest.raises(BudgetError, match="give an int of bytes"):
        parse_bytes(value)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [0, -5, "0", "0MB", "0.1B"])
def test_nothing_is_refused(value: int | str) -> None:
    with pytest.raises(BudgetError, match="more than zero"):
        parse_bytes(value)


def test_share_without_a_relation_or_of_an_empty_one_is_refused() -> None:
    with pytest.raises(BudgetError, match="no relation here"):
        parse_bytes("10%")
    with pytest.raises(BudgetError, match="more than zero"):
        parse_bytes("10%", of=0)


def test_bytes_are_written_for_people() -> None:
    assert [format_bytes(n) for n in (0, 999, 1200, 64 * 10**6, 10**15)] == [
        "0 B",
        "999 B",
        "1.2 kB",
        "64 MB",
        "1e+03 TB",
    ]


def test_require_names_the_least_that_would_do() -> None:
    budget = MemoryBudget(1000)
    budget.require(1000, purpose="two pages")
    with pytest.raises(BudgetError, match="1000 bytes is too small for two pages: it needs at least 1001 bytes"):
        budget.require(1001, purpose="two pages")


def test_charge_over_the_limit_changes_nothing_and_says_who_holds_what() -> None:
    budget = MemoryBudget(100)
    budget.charge("window", 60)
    with pytest.raises(BudgetExceeded, match=r"cache asked for 41 bytes with 40 of 100 free .*'window': 60"):
        budget.charge("cache", 41)
    assert (budget.used, budget.peak, budget.by_name) == (60, 60, {"window": 60})
    budget.charge("cache", 40)
    assert budget.free == 0


@pytest.mark.parametrize("name", ["window", "other"])
def test_more_cannot_be_released_than_is_held(name: str) -> None:
    budget = MemoryBudget(100)
    budget.charge("window", 10)
    with pytest.raises(BudgetExceeded, match="but holds"):
        budget.release(name, 11)
    with pytest.raises(BudgetExceeded):
        budget.charge(name, -1)
    with pytest.raises(BudgetExceeded):
        budget.release(name, -1)
    assert budget.used == 10


def test_charged_gives_back_when_the_block_fails() -> None:
    budget = MemoryBudget(100)

    def fail() -> None:
        with budget.charged("staging", 70):
            assert budget.used == 70
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert (budget.used, budget.peak, budget.by_name) == (0, 70, {})


def test_a_buffer_is_charged_anew_when_its_size_changes() -> None:
    budget = MemoryBudget(100)
    for nbytes in (30, 100, 0, 20):
        budget.recharge("window", nbytes)
        assert budget.used == nbytes
    budget.charge("cache", 50)
    with pytest.raises(BudgetExceeded, match="window asked for 31 bytes"):
        budget.recharge("window", 51)
    assert budget.by_name == {"window": 20, "cache": 50}


@given(st.integers(1, 10**18))
def test_an_int_is_itself(nbytes: int) -> None:
    assert parse_bytes(nbytes) == nbytes


class Ledger(RuleBasedStateMachine):
    """Any sequence of charges and releases, beside a plain dict."""

    def __init__(self) -> None:
        super().__init__()
        self.budget = MemoryBudget(1000)
        self.held: dict[str, int] = {}
        self.most = 0

    @rule(name=st.sampled_from("abc"), nbytes=st.integers(0, 700))
    def charge(self, name: str, nbytes: int) -> None:
        if sum(self.held.values()) + nbytes > 1000:
            with pytest.raises(BudgetExceeded):
                self.budget.charge(name, nbytes)
            return
        self.budget.charge(name, nbytes)
        self.held[name] = self.held.get(name, 0) + nbytes
        self.most = max(self.most, sum(self.held.values()))

    @precondition(lambda self: any(self.held.values()))
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(name for name, held in self.held.items() if held)))
        nbytes = data.draw(st.integers(0, self.held[name]))
        self.budget.release(name, nbytes)
        self.held[name] -= nbytes

    @invariant()
    def the_sum_is_right_and_never_over(self) -> None:
        budget = self.budget
        assert budget.used == sum(self.held.values()) == sum(budget.by_name.values())
        assert budget.used + budget.free == budget.limit == 1000
        assert budget.used <= budget.peak == self.most <= 1000
        assert budget.by_name == {name: held for name, held in self.held.items() if held}


TestLedger = Ledger.TestCase
