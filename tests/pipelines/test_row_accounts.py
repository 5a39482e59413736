"""Every row has one outcome, whatever the outcomes of its results."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from semistream.pipelines.task.row_accounts import OUTCOMES, STALLED, Accounts

ends = st.lists(st.tuples(st.sampled_from([STALLED, *OUTCOMES]), st.integers(0, 19)), max_size=60)


@given(rows=st.integers(0, 20), ended=ends)
def test_rows_count_for_the_first_of_their_outcomes(rows, ended):
    accounts = Accounts()
    numbers = accounts.enter(rows)
    ended = [(outcome, row) for outcome, row in ended if row < rows]
    for outcome, row in ended:
        accounts.end(outcome, numbers[row : row + 1])
    expected = dict.fromkeys(OUTCOMES, 0)
    stalled = 0
    for row in range(rows):
        own = {outcome for outcome, number in ended if number == row}
        if STALLED in own:
            stalled += 1
        else:
            for outcome in OUTCOMES:
                if outcome in own:
                    expected[outcome] += 1
                    break
    assert accounts.outcomes() == (expected, stalled)


@given(st.lists(st.tuples(st.sampled_from(OUTCOMES), st.integers(0, 10), st.booleans()), max_size=12))
def test_rows_without_numbers_count_as_those_with(came):
    accounts, numbered = Accounts(), Accounts()
    for outcome, rows, all_alike in came:
        numbered.end(outcome, numbered.enter(rows))
        if all_alike:
            accounts.enter_and_end(outcome, rows)
        else:
            accounts.end(outcome, accounts.enter(rows))
    assert accounts.outcomes() == numbered.outcomes()
    assert accounts.rows == numbered.rows == sum(accounts.outcomes()[0].values())


def test_a_row_without_an_outcome_is_missed():
    accounts = Accounts()
    accounts.end("joined", accounts.enter(3)[:2])
    outcomes, stalled = accounts.outcomes()
    assert sum(outcomes.values()) + stalled == 2 < accounts.rows


@given(batches=st.lists(st.lists(st.integers(-5, 50), max_size=12), max_size=6))
def test_rows_of_an_origin_have_one_new_number_each(batches):
    accounts = Accounts()
    accounts.enter(4)
    origin = accounts.origin()
    known = {}
    for old in batches:
        for before, new in zip(old, origin.numbers(np.array(old, np.int64)).tolist(), strict=True):
            assert known.setdefault(before, new) == new
    assert sorted(known.values()) == list(range(4, 4 + len(known)))
    assert accounts.rows == 4 + len(known)
