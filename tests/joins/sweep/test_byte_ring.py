"""A ring never allots a byte twice, and reuses all freed bytes."""

from __future__ import annotations

from collections import deque

from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.joins.sweep.byte_ring import ByteRing, Place, aligned

SIZE = 400


@settings(deadline=None)
@given(sizes=st.lists(st.integers(1, 150), max_size=60), kept=st.integers(0, 5))
def test_allotted_bytes_never_overlap(sizes: list[int], kept: int) -> None:
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


def test_a_short_rest_at_the_end_is_skipped_for_one_round() -> None:
    ring = ByteRing(100)
    ring.take(0, 40)
    ring.take(40, 40)
    assert ring.room(30) == (80, aligned(100) - 80)  # there is nothing better
    ring.free()
    assert ring.room(30) == (0, 40)
    assert ring.room(10) == (80, aligned(100) - 80)


@settings(deadline=None)
@given(data=st.data(), sizes=st.lists(st.integers(1, 120), min_size=1, max_size=30))
def test_a_shrunk_allotment_keeps_its_first_bytes_and_frees_one_place(data: st.DataObject, sizes: list[int]) -> None:
    ring = ByteRing(SIZE)
    held: deque[tuple[Place, bytes]] = deque()
    for number, nbytes in enumerate(sizes):
        while (place := ring.room(nbytes)).nbytes < nbytes:
            ring.free()
            held.popleft()
        content = bytes((number + i) % 251 for i in range(nbytes))
        ring.block[place.begin : place.begin + nbytes] = list(content)
        ring.take(place.begin, nbytes)
        held.append((Place(place.begin, nbytes), content))
        if data.draw(st.booleans()):
            kept = [data.draw(st.integers(0, place.nbytes)) for place, _ in held]
            begins = ring.shrink(kept)
            held = deque(
                (Place(begin, size), content[:size])
                for begin, size, (_, content) in zip(begins, kept, held, strict=True)
            )
            free = SIZE - sum(aligned(size) for size in kept)
            assert ring.room(SIZE).nbytes == free
        for taken, content in held:
            assert ring.block[taken.begin : taken.begin + taken.nbytes].tobytes() == content
