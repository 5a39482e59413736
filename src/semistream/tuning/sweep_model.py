"""What a pass of the sweep reads, and how many tuples share it: the engine's model, which no paper has."""

from __future__ import annotations

from dataclasses import dataclass

from semistream.relation.disk_costs import DiskCosts
from semistream.tuning.checks import require_numbers
from semistream.tuning.expected_reads import ExpectedReads, expected_reads
from semistream.tuning.frequencies import KeyFrequencies


@dataclass(frozen=True)
class SweepModel:
    """A sweep over ``num_pages`` of ``page_bytes``, in runs of up to ``run_bytes``, that keeps pace with its stream so
    that ``paced_rows`` tuples come in a pass; up to ``most_waiting`` of them can wait at a time.

    It is MESHJOIN's (3) with the pages that are needed instead of all: while the sweep goes round once, `pass_rows`
    tuples come, so each page is met by those of them that need it, and is read if there are any. Which pages these are
    follows from the frequencies of the keys, and what they cost from the plan of SSIJ IV-D.

    A tuple goes when its pages have passed, so half of those that come in a pass wait, if they ask for pages all around
    R. A share q that asks for one page goes all at once when it passes, and just before that (1 + q) / 2 wait. If that
    is more than can wait, the sweep must hurry there, and fewer tuples come in a pass.
    """

    frequencies: KeyFrequencies
    num_pages: int
    page_bytes: int
    paced_rows: float
    most_waiting: float
    run_bytes: int

    def __post_init__(self) -> None:
        require_numbers(self, "num_pages", "page_bytes", "paced_rows", "most_waiting", "run_bytes")

    @property
    def pass_rows(self) -> float:
        """Tuples that come in a pass."""
        return min(self.paced_rows, 2 * self.most_waiting / (1 + self.frequencies.share(1)))

    @property
    def pages_wanted(self) -> float:
        """Pages that are needed in a pass."""
        return min(self.frequencies.pages(self.num_pages, self.pass_rows), self.num_pages)

    def reads(self, costs: DiskCosts) -> ExpectedReads:
        """What a pass reads by plans for a disk of such costs."""
        return expected_reads(
            self.num_pages, self.pages_wanted, costs, page_bytes=self.page_bytes, most_bytes=self.run_bytes
        )

    def disk_rate(self, costs: DiskCosts) -> float:
        """Tuples per second if only the disk takes time."""
        return self.pass_rows / self.reads(costs).seconds(costs, self.page_bytes)
