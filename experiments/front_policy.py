"""FrontPolicy: the hit rate of a front stage's cache, simulated from a sample of the stream.

The operators go by `MissRatioCurve`, which is exact for LFU. This simulation shows what a front stage loses beside LFU
when hot keys change.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from semistream.costs.miss_ratio import HashedSample, MissRatioCurve
from semistream.errors import require_numbers
from semistream.kernels.array_types import Bytes, Floats, Int32s, Int64s

_SIZES = 24  # cache sizes to simulate
_LEAST_KEYS = 4  # keys in the smallest simulated cache
_PIECE_ROWS = 1 << 12  # tuples that a large front stage looks up at a time; it halves counts at most once in two pieces
_WARM_UP = 0.5  # share of the sample that only fills the caches

_OUT, _NOTED, _HELD = np.uint8(0), np.uint8(1), np.uint8(2)
_FIRST_THRESHOLD = 2
_NOTES = 10  # at most capacity / 10 keys are noted before they are admitted
_FILLING, _FILLED = 8, 0.9  # below 90 % full, keys are admitted once an eighth of the number held is noted
_AGED_AFTER = 2  # tuples per key held, after which counts are halved
_WORTH = 1  # additional hits per admitted key that justify replacing keys
_MOST_HALVINGS = 31


@dataclass(frozen=True)
class FrontPolicy:
    """Replacement policy of a front stage's cache: keep the recently most frequent keys that it knows of.

    The cache counts hits at once. It counts a missed tuple when the join behind it reads the page of its key; all pages
    are read while ``pass_rows`` missed tuples arrive. Counts are halved when ``waiting_rows`` missed tuples, the
    average number that wait in the join, have met their pages, or later in a large cache. While the hot keys stay the
    same, the policy is close to LFU and loses only through halving. After they change, it answers little for one pass,
    which neither LFU nor LRU models.

    In a sweep a tuple leaves when it has met its page: on average half a pass of tuples waits, including those about to
    enter, so ``pass_rows`` is twice ``waiting_rows``. In MESHJOIN a tuple stays for a whole pass, and the two are
    equal.

    Hit rates are within 3 percentage points of those of a running stage. They are a little more too high if a pass has
    fewer tuples than the cache has rows. If all hot keys change at once, nearly as often as R is passed, the hit rate
    depends on the join's position in R at that time.
    """

    pass_rows: float
    waiting_rows: float

    def __post_init__(self) -> None:
        require_numbers(self, "pass_rows", "waiting_rows")

    def curve(self, codes: Int64s, *, most_tuples: int = 1 << 20) -> MissRatioCurve:
        """Return hit rates at 24 sizes, from the key codes of a stretch of the stream that covers several passes."""
        sample = HashedSample.of(codes, warming=int(_WARM_UP * codes.size), most_tuples=most_tuples)
        keys, key = np.unique(sample.codes, return_inverse=True)
        rows, hits = _simulated(key.astype(np.int32), keys.size, sample, self)
        hits[1:] += sample.expected - (sample.codes.size - sample.warming)
        return MissRatioCurve(rows / sample.rate, (hits / sample.expected).clip(0, 1))


def _simulated(key: Int32s, num_keys: int, sample: HashedSample, policy: FrontPolicy) -> tuple[Floats, Floats]:
    """Simulate caches of some sizes, up to one that holds all keys, and return their hits."""
    pass_rows, waiting_rows = (max(round(rows * sample.rate), 1) for rows in (policy.pass_rows, policy.waiting_rows))
    page = np.arange(num_keys) * pass_rows // num_keys  # R is in the order of its codes
    sizes = np.unique(np.geomspace(min(_LEAST_KEYS, num_keys), num_keys, _SIZES).astype(np.int64))
    piece_rows = max(round(_PIECE_ROWS * sample.rate), 1)
    hits = [
        simulate_front_cache(
            key, page, size, pass_rows, waiting_rows, 2 * min(size, piece_rows), counted_from=sample.warming
        )
        for size in sizes.tolist()
    ]
    return np.append(0.0, sizes), np.append(0.0, np.array(hits, np.float64))


@njit(cache=True, nogil=True)
def simulate_front_cache(
    key: Int32s,
    page: Int64s,
    capacity: int,
    pass_rows: int,
    waiting_rows: int,
    least_period: int,
    counted_from: int,
) -> int:
    """Return the hits, from tuple ``counted_from`` on, of a front stage's cache of ``capacity`` keys.

    A hit counts for its key at once. A tuple that misses counts when the join reads the page of its key: one pass over
    all pages takes ``pass_rows`` missed tuples and reads the page of key k at place ``page[k]``, modulo ``pass_rows``.
    A key whose count exceeds a threshold is noted. Noted keys are admitted many at a time, in place of held keys with
    lower counts, if that gains enough hits. The threshold is just above the counts of the keys to be replaced next. All
    counts are halved once two tuples per held key and at least ``least_period`` tuples have arrived, and
    ``waiting_rows`` missed tuples have met their pages.
    """
    num_keys = page.size
    count, halved = np.zeros(num_keys, np.int32), np.zeros(num_keys, np.int32)
    state = np.zeros(num_keys, np.uint8)
    waiting, next_waiting = np.zeros(num_keys, np.int32), np.empty(num_keys, np.int32)
    first_waiting = np.full(pass_rows, -1, np.int32)  # heads of linked lists of keys with the same page
    held, noted = np.empty(capacity, np.int32), np.empty(max(capacity // _NOTES, 1), np.int32)
    num_held = num_noted = seen = met = halvings = missed = hits = 0
    threshold = _FIRST_THRESHOLD
    for i in range(key.size):
        k = key[i]
        seen += 1
        if state[k] == _HELD:
            count[k] += 1
            hits += i >= counted_from
            continue
        if waiting[k] == 0:
            next_waiting[k] = first_waiting[page[k] % pass_rows]
            first_waiting[page[k] % pass_rows] = k
        waiting[k] += 1
        missed += 1
        here = missed % pass_rows
        k = first_waiting[here]
        first_waiting[here] = -1
        while k >= 0:
            met += waiting[k]
            if state[k] != _HELD:
                count[k] = (count[k] >> min(halvings - halved[k], _MOST_HALVINGS)) + waiting[k]
                halved[k] = halvings
            waiting[k] = 0
            if state[k] == _OUT and count[k] > threshold:
                noted[num_noted] = k
                num_noted += 1
                state[k] = _NOTED
                filling = num_held + num_noted < _FILLED * capacity and num_noted >= num_held // _FILLING
                if filling or num_noted == noted.size:
                    num_held, threshold = _take_in(held, num_held, noted[:num_noted], count, state, threshold)
                    num_noted = 0
            k = next_waiting[k]
        if seen >= max(_AGED_AFTER * num_held, least_period) and met >= waiting_rows:
            num_held, threshold = _take_in(held, num_held, noted[:num_noted], count, state, threshold)
            num_noted = seen = met = 0
            halvings += 1
            threshold = max(threshold // 2, 1)
            for j in range(num_held):
                count[held[j]] >>= 1
                halved[held[j]] = halvings
    return hits


@njit(cache=True, nogil=True)
def _take_in(
    held: Int32s, num_held: int, noted: Int32s, count: Int32s, state: Bytes, threshold: int
) -> tuple[int, int]:
    """Admit noted keys in place of held ones with lower counts; return the number held and the new threshold."""
    if noted.size == 0:
        return num_held, threshold
    state[noted] = _OUT
    if num_held + noted.size <= held.size:
        held[num_held : num_held + noted.size] = noted
        state[noted] = _HELD
        return num_held + noted.size, 1
    ascending = np.sort(count[held[:num_held]])
    replaced = min(noted.size, num_held)
    gain = count[noted].sum() - ascending[:replaced].sum()
    if num_held < held.size or gain > _WORTH * replaced:
        keys = np.concatenate((held[:num_held], noted))
        state[held[:num_held]] = _OUT
        order = np.argsort(-count[keys], kind="mergesort")  # on ties, held keys come first
        num_held = held.size
        held[:] = keys[order[:num_held]]
        state[held] = _HELD
        for k in keys[order[num_held:]]:
            count[k] = 0
        ascending = np.sort(count[held])
    return num_held, ascending[replaced - 1] + _WORTH
