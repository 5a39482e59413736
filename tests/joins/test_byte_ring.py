"""A ring never gives out a byte twice, and finds room again for all that was freed."""

from __future__ import annotations

from collections import deque

from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.joins.byte_ring import ByteRing, aligned

SIZE = 400


@settings(deadline=None)
@given(sizes=st.lists(st.integers(1, 150), max_size=60), kept=st.integers(0, 5))
def test_what_is_taken_never_overlaps(sizes: list[int], kept: int) -> None:
    ring = ByteRing(SIZE)
    held: deque[range] = deque()
    for nbytes in sizes:
        while True:
            place = ring.room(nbytes)
            if place.nbytes >= nbytes:
                break
            assert held, "an empty ring has room for anything that is not larger than itself"
            ring.free()
            held.popleft()
        taken = range(place.begin, place.begin + nbytes)
        assert taken.stop <= SIZE
        assert all(taken.stop <= other.start or other.stop <= taken.start for other in held)
        ring.take(place.begin, nbytes)
        held.append(taken)
        while len(held) > kept:
            ring.free()
            held.popleft()
    while held:
        ring.free()
        held.popleft()
    assert ring.room(1) == (0, SIZE)


def test_what_is_too_short_at_the_end_is_left_out_for_one_round() -> None:
    ring = ByteRing(100)
    ring.take(0, 40)
    ring.take(40, 40)
    assert ring.room(30) == (80, aligned(100) - 80)  # there is nothing better
    ring.free()
    assert ring.room(30) == (0, 40)
    assert ring.room(10) == (80, aligned(100) - 80)
