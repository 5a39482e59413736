"""Replacement policies of the page cache: utility (SSIJ IV-C), or least recently used."""

from __future__ import annotations

from typing import Protocol

from semistream.kernels.array_types import Int32s


class Replacement(Protocol):
    """A rule for the worth of cached pages; pages of the least worth are evicted first."""

    def joined(self, worth: Int32s, tuples: Int32s, /) -> None:
        """Update the worth of pages joined with ``tuples`` tuples each in an online phase; 0 means not used."""

    def awaited(self, worth: Int32s, waiting: Int32s, /) -> None:
        """Update the worth of pages for the tuples ``waiting`` for them, which a join phase joins."""

    def end_phase(self, worth: Int32s, /) -> None:
        """End a join phase."""


class Utility:
    """SSIJ's policy: a page is worth the number of tuples that joined it or wait for it since the last join phase."""

    def joined(self, worth: Int32s, tuples: Int32s) -> None:
        """Count the tuples (Algorithm 1, line 5)."""
        worth += tuples

    def awaited(self, worth: Int32s, waiting: Int32s) -> None:
        """Count the waiting tuples: the length of the page's list in the inverted index."""
        worth += waiting

    def end_phase(self, worth: Int32s) -> None:
        """Clear the counters (Algorithm 2, line 18)."""
        worth.fill(0)


class LeastRecentlyUsed:
    """The policy that SSIJ VI-D compares with: a page used in a later phase is worth more, whatever its tuples."""

    def __init__(self) -> None:
        self._phase = 1

    def joined(self, worth: Int32s, tuples: Int32s) -> None:
        """Make the used pages the most recent."""
        worth[tuples > 0] = self._phase
        self._phase += 1

    def awaited(self, worth: Int32s, waiting: Int32s) -> None:
        """Make the pages of a join phase more recent than all cached ones."""
        worth[waiting > 0] = self._phase

    def end_phase(self, _worth: Int32s) -> None:
        """Make all pages older than those used from now on."""
        self._phase += 1


POLICIES: dict[str, type[Utility] | type[LeastRecentlyUsed]] = {"utility": Utility, "lru": LeastRecentlyUsed}
"""The policies by name."""
