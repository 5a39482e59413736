"""Classes of priority: their grid keeps the order of values, and keys are found in them by their codes."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.windows.kernels.key_classes import find_classes, index_codes
from semistream.windows.kernels.priorities import GRID_CLASSES, grid_classes, grid_values, mark_words


@given(st.lists(st.floats(min_value=-1e30, max_value=1e30), min_size=1, max_size=50))
@settings(deadline=None)
def test_the_grid_keeps_the_order_up_to_three_percent(values: list[float]) -> None:
    given_values = np.array(values)
    found = np.empty(given_values.size, np.int32)
    grid_classes(given_values, found)
    assert (np.diff(found[np.argsort(given_values)]) >= 0).all()
    least = grid_values()
    assert least.size == GRID_CLASSES
    assert (np.diff(least) > 0).all()
    inside = (given_values >= 2.0**-64) & (given_values < 2.0**64)
    assert (least[found[inside]] <= given_values[inside]).all()
    assert (least[found[inside]] > given_values[inside] / 1.0313).all()
    assert (found[given_values <= 0] == 0).all()
    assert (found[(given_values > 0) & (given_values < 2.0**-64)] == 1).all()


def test_levels_of_marks_end_in_one_word() -> None:
    assert [mark_words(n) for n in (1, 64, 65, 4096, 4097, 2**18, 2**18 + 1)] == [1, 1, 3, 65, 68, 4161, 4165]


@given(st.dictionaries(st.integers(-(2**63), 2**63 - 1), st.integers(0, 9), max_size=40), st.data())
@settings(deadline=None)
def test_codes_are_found(classes: dict[int, int], data: st.DataObject) -> None:
    codes = np.array(list(classes), np.int64)
    slots = np.full(1 << (2 * codes.size).bit_length(), -1, np.int32)
    index_codes(codes, slots)
    wanted = data.draw(st.lists(st.sampled_from([*classes, 0, 1, -1]), max_size=40))
    found = np.empty(len(wanted), np.int32)
    find_classes(np.array(wanted, np.int64), codes, slots, np.array(list(classes.values()), np.int32), found)
    assert found.tolist() == [classes.get(code, 0) for code in wanted]
