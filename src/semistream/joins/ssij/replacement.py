"""What a cached page is worth: by its utility (SSIJ IV-C), or by when it was last used."""

from __future__ import annotations

from typing import Protocol

from semistream.kernels.array_types import Int32s


class Replacement(Protocol):
    """A rule for which pages stay when not all can; those of the least worth go first."""

    def joined(self, worth: Int32s, tuples: Int32s, /) -> None:
        """Pages were joined in an online phase, each with so many ``tuples``; with none it was not used."""

    def awaited(self, worth: Int32s, waiting: Int32s, /) -> None:
        """Add to the worth of pages that so many tuples are ``waiting`` for, which a join phase joins."""

    def end_phase(self, worth: Int32s, /) -> None:
        """A join phase has ended."""


class Utility:
    """SSIJ: a page is worth as much as tuples have joined it, or wait for it, since the last join phase."""

    def joined(self, worth: Int32s, tuples: Int32s) -> None:
        """Count the tuples (Algorithm 1, line 5)."""
        worth += tuples

    def awaited(self, worth: Int32s, waiting: Int32s) -> None:
        """Count the tuples that wait: the length of the page's list in the inverted index."""
        worth += waiting

    def end_phase(self, worth: Int32s) -> None:
        """Clear the counters (Algorithm 2, line 18)."""
        worth.fill(0)


class LeastRecentlyUsed:
    """What SSIJ is compared with in VI-D: pages of the latest phase are worth most, whoever asked for them."""

    def __init__(self) -> None:
        self._phase = 1

    def joined(self, worth: Int32s, tuples: Int32s) -> None:
        """Pages that were used are as recent as anything."""
        worth[tuples > 0] = self._phase
        self._phase += 1

    def awaited(self, worth: Int32s, waiting: Int32s) -> None:
        """What a join phase reads is more recent than all that is cached."""
        worth[waiting > 0] = self._phase

    def end_phase(self, _worth: Int32s) -> None:
        """From now on everything is older."""
        self._phase += 1


POLICIES: dict[str, type[Utility] | type[LeastRecentlyUsed]] = {"utility": Utility, "lru": LeastRecentlyUsed}
"""The rules by name."""
