"""Rows that a full cache keeps."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from semistream.joins.cache.tuple_cache import hottest

KEYS = st.dictionaries(st.integers(-(2**62), 2**62), st.tuples(st.integers(0, 4), st.integers(1, 3)), max_size=40)


def _rows(keys: dict[int, tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    rows = [(asked, code) for code, (asked, copies) in keys.items() for _ in range(copies)]
    return np.array([asked for asked, _ in rows], np.int32), np.array([code for _, code in rows], np.int64)


@given(KEYS, KEYS, st.integers(0, 60))
def test_the_hottest_are_kept_with_all_rows_of_a_key(
    held: dict[int, tuple[int, int]], new: dict[int, tuple[int, int]], most: int
) -> None:
    new = {code: key for code, key in new.items() if code not in held}
    (frequency, codes), (new_frequency, new_codes) = _rows(held), _rows(new)
    every = np.concatenate([frequency, new_frequency])
    if every.size <= most or every.size == 0:
        return
    kept, kept_new, cut = hottest((frequency, codes), (new_frequency, new_codes), most)
    asked, chosen = every, np.concatenate([kept, kept_new])
    assert not np.any(chosen[asked < cut])
    assert np.all(chosen[asked > cut])
    for code in [*held, *new]:
        assert len({*kept[codes == code].tolist(), *kept_new[new_codes == code].tolist()}) == 1
    assert most - 2 <= np.count_nonzero(chosen) <= most  # a key has up to three rows
    if np.any(kept_new[new_frequency == cut]):
        assert np.all(kept[frequency == cut])  # cached rows stay before others enter
    again, again_new, _ = hottest((frequency, codes), (new_frequency, new_codes), most)
    assert (again.tolist(), again_new.tolist()) == (kept.tolist(), kept_new.tolist())
