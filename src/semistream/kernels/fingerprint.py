"""Fingerprints of samples: how many keys came once, twice, and so on, as counted and as expected."""

import numpy as np
import numpy.typing as npt
from numba import njit

from semistream.kernels.types import Int64s

Floats = npt.NDArray[np.float64]


@njit(cache=True, nogil=True)
def count_runs(codes: Int64s, excluded: Int64s, fingerprint: Int64s) -> int:
    """Add to ``fingerprint[i]`` the keys that came i + 1 times, and to the last those that came more often.

    Both ``codes`` and the keys that are ``excluded`` ascend. Gives how many tuples were counted.
    """
    tuples = 0
    begin, other = 0, 0
    while begin < codes.size:
        end = begin + 1
        while end < codes.size and codes[end] == codes[begin]:
            end += 1
        while other < excluded.size and excluded[other] < codes[begin]:
            other += 1
        if other == excluded.size or excluded[other] != codes[begin]:
            fingerprint[min(end - begin, fingerprint.size) - 1] += 1
            tuples += end - begin
        begin = end
    return tuples


@njit(cache=True, nogil=True)
def often_counted(codes: Int64s, least: int, out_code: Int64s, out_count: Int64s) -> int:
    """Keys that come at least so often in codes that ascend, with their counts; gives how many there are."""
    found = 0
    begin = 0
    while begin < codes.size:
        end = begin + 1
        while end < codes.size and codes[end] == codes[begin]:
            end += 1
        if end - begin >= least:
            out_code[found], out_count[found] = codes[begin], end - begin
            found += 1
        begin = end
    return found


@njit(cache=True, nogil=True)
def thin_counts(codes: Int64s, least: int, draws: Floats, out_code: Int64s, out_count: Int64s) -> int:
    """Keys of codes that ascend, with their counts, but of those below ``least`` only some; gives how many there are.

    A key that came c < ``least`` times is kept with probability c / least and then counts ``least`` times, so that what
    is counted is expected to be the true number (threshold sampling: N. Duffield, C. Lund & M. Thorup, J. ACM 54(6),
    2007). ``draws`` has a number from 0 to 1 for each code. ``out_code`` may be ``codes``.
    """
    kept = 0
    begin, number = 0, 0
    while begin < codes.size:
        end = begin + 1
        while end < codes.size and codes[end] == codes[begin]:
            end += 1
        if end - begin >= least or draws[number] * least < end - begin:
            out_code[kept], out_count[kept] = codes[begin], max(end - begin, least)
            kept += 1
        number += 1
        begin = end
    return kept


@njit(cache=True, nogil=True)
def expected_fingerprint(keys: Floats, rate: Floats, out: Floats) -> float:
    """How many keys are expected to come i + 1 times, in ``out[i]``, and in the last, so often or more.

    ``keys[g]`` of them come ``rate[g]`` times in a sample on average; how often one comes is taken to be Poisson's.
    Gives how many different keys are expected in all.
    """
    out[:] = 0.0
    distinct = 0.0
    for group in range(keys.size):
        number, mean = keys[group], rate[group]
        distinct -= number * np.expm1(-mean)
        term = number * np.exp(-mean)
        for times in range(1, out.size):
            term *= mean / times
            out[times - 1] += term
            if times > mean and term < 1e-12:
                break
    out[-1] = max(distinct - out[:-1].sum(), 0.0)
    return distinct


@njit(cache=True, nogil=True)
def power_law_exponent(
    keys: Floats, log_rank: Floats, tuples: float, distinct: float, steepest: float, halvings: int
) -> float:
    """The exponent a of P ~ exp(-a * log_rank), up to ``steepest``, that has ``distinct`` different keys in ``tuples``.

    ``keys[g]`` of them have ``log_rank[g]``. The steeper the law, the fewer different keys come.
    """
    low, high = 0.0, steepest
    weight = np.empty(keys.size)
    for _ in range(halvings):
        middle = (low + high) / 2
        total = 0.0
        for group in range(keys.size):
            weight[group] = np.exp(-middle * log_rank[group])
            total += keys[group] * weight[group]
        expected = 0.0
        for group in range(keys.size):
            expected -= keys[group] * np.expm1(-tuples * weight[group] / total)
        if expected > distinct:
            low = middle
        else:
            high = middle
    return (low + high) / 2


@njit(cache=True, nogil=True)
def hot_share(hot: float, cold: float, tuples: float, distinct: float, halvings: int) -> float:
    """The share of ``tuples`` that asks for ``hot`` keys if ``distinct`` different keys come, of them or ``cold`` ones.

    All hot keys are alike, and all cold ones. The more of the tuples the hot ones have, the fewer different keys come.
    """
    low, high = hot / (hot + cold), 1.0
    for _ in range(halvings):
        middle = (low + high) / 2
        expected = -hot * np.expm1(-tuples * middle / hot) - cold * np.expm1(-tuples * (1 - middle) / cold)
        if expected > distinct:
            low = middle
        else:
            high = middle
    return (low + high) / 2
