"""MemorySplit: an operator's budget, split over index, page buffers, matches, stream tuples and output."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from semistream.budget import MemoryBudget
from semistream.errors import BudgetError
from semistream.joins.condition.pair_check import PairCheck
from semistream.joins.condition.run_codes import COMPUTED_ROW_BYTES
from semistream.joins.condition.spec import GUESSED_BYTES, JoinSpec
from semistream.relation import AnyRelation, RunReader
from semistream.relation.null_keys import MOST_ROWS

_RUN_BYTES = 4 << 20
_STAGING_BYTES = 8 << 20  # kept free for output, so that a single row may be this wide; 1/16 of a large budget
_BATCH_BYTES = 1 << 20  # most bytes of a result batch: a consumer that reads it by row wants it in the CPU cache
_MATCH_BYTES = 64  # a pair of tuple and row, its size, and its place while pairs are sorted and verified
_LEAST_MATCHES = 64
LEAST_SLOTS = 16
_MOST_SLOTS = 1 << 32
_CHECK_BYTES = 4 << 20  # values of the pairs checked together; 1/16 of a large budget
ADMIT_ROW_BYTES = 48  # a tuple's code, mask, size, number and sort position while it is admitted
_ADMIT_RANGE_BYTES = 128  # the same for a range, with the bounds it is computed from
_GROWTH = 16  # bytes of memory to add for each byte more of checks and payload


@dataclass(frozen=True)
class Shares:
    """Sizes of some parts, as divisors of the budget or of its spare bytes: 12 means one twelfth."""

    run: int = 12
    most_run_bytes: int = _RUN_BYTES
    matches: int = 12
    staging: int = 16  # of a large budget
    least_staging: int = 6  # of a small one, where `_STAGING_BYTES` would be more than this share
    admit: int = 16
    admit_bytes: int | None = None  # bytes per admitted tuple, if not `admit_row_bytes`


@dataclass(frozen=True)
class RunCost:
    """Bytes of the runs in memory: ``buffers`` buffers, their bookkeeping, and the codes computed from them.

    ``largest`` is the size of the largest page.
    """

    relation: AnyRelation
    buffers: int
    largest: int
    computes_codes: bool

    def __call__(self, run_bytes: int, run_pages: int) -> int:
        """Return the bytes for runs of up to ``run_bytes`` and ``run_pages``."""
        noted = self.buffers * run_pages * page_overhead(self.relation)
        codes = _most_run_rows(self.relation, run_bytes) * COMPUTED_ROW_BYTES + self.largest
        buffers = RunReader.memory_bytes(run_bytes, self.buffers, self.relation.segments)
        return buffers + noted + (codes if self.computes_codes else 0)


@dataclass(frozen=True)
class MemorySplit:
    """The parts of a budget, in bytes and in items; together they never exceed it.

    A run of pages has at most ``run_bytes`` and ``run_pages``. ``slots`` bounds the stream tuples held,
    ``payload_bytes`` their bytes, and ``admit_rows`` the tuples admitted at once. Results come out in batches of about
    ``batch_bytes``, or as single rows of up to ``staging_bytes``. ``widest_row`` bounds a row of R, which is no wider
    than the largest page. Pairs are checked in pieces of ``check_bytes``, enough for a pair with a stream row of up to
    ``widest_checked`` bytes (None: any width).
    """

    run_bytes: int
    run_pages: int
    matches: int
    staging_bytes: int
    batch_bytes: int
    widest_row: int
    check_bytes: int
    widest_checked: int | None
    slots: int
    admit_rows: int
    payload_bytes: int
    growth: int  # bytes of memory for each byte of a wider row

    @classmethod
    def of(
        cls,
        budget: MemoryBudget,
        relation: AnyRelation,
        spec: JoinSpec,
        *,
        purpose: str,
        index_bytes: int,
        slots_bytes: Callable[[int], int],
        run_buffers: int,
        run_pages: int | None = None,
        largest_page: int = 0,
        decoding_bytes: int = 0,
        shares: Shares | None = None,
    ) -> MemorySplit:
        """Split ``budget`` and charge everything allocated up front; raise `BudgetError` if it is too small.

        ``index_bytes`` is the size of the operator's index of R, and ``slots_bytes(n)`` that of its index of n stream
        tuples. It holds ``run_buffers`` runs of pages at once, of ``run_pages`` pages if that is fixed.
        ``largest_page`` bounds the bytes of pages not in R's page table, and ``decoding_bytes`` is needed for decoding.
        ``shares`` sets the size of some parts.
        """
        shares = shares or Shares()
        condition = spec.condition
        largest = max(relation.largest_page, largest_page)
        tuple_bytes = spec.expected_row_bytes
        widest = 2 * largest + 4096  # a row's values and their validity take less than twice its page
        wide_tuple = 4 * tuple_bytes + 4096
        least_staging = widest + wide_tuple
        checked_row, least_check = _check_cost(condition.check, widest, wide_tuple, tuple_bytes)

        runs = RunCost(relation, run_buffers, largest, condition.computes_codes)

        def run_cost(run_bytes: int) -> int:
            return runs(run_bytes, _run_pages(run_bytes, largest))

        admit_bytes = shares.admit_bytes or admit_row_bytes(spec)
        most_admitted = max(LEAST_SLOTS, budget.limit // shares.admit // admit_bytes)

        def slots_cost(slots: int) -> int:
            return slots_bytes(slots) + slots * tuple_bytes + min(slots, most_admitted) * admit_bytes

        asked = largest * (run_pages or 1)
        matches_bytes = _LEAST_MATCHES * _MATCH_BYTES
        least = (
            index_bytes
            + decoding_bytes
            + run_cost(asked)
            + matches_bytes
            + least_staging
            + least_check
            + slots_cost(LEAST_SLOTS)
        )
        budget.require(least, purpose=purpose)

        spare = budget.limit - least
        run_bytes = max(largest, min(shares.most_run_bytes, spare // shares.run))
        if run_pages is not None or largest == 0 or run_cost(run_bytes) - run_cost(asked) > spare // 3:
            run_bytes = asked
        staging = least_staging + min(max(_STAGING_BYTES, spare // shares.staging), spare // shares.least_staging)
        check = least_check + min(max(_CHECK_BYTES, spare // 16), spare // 12) if condition.check else 0
        matches = max(_LEAST_MATCHES, min(1 << 16, spare // shares.matches // _MATCH_BYTES))
        budget.charge("page index", index_bytes)
        budget.charge("decoding", decoding_bytes)
        budget.charge("page buffers", run_cost(run_bytes))
        budget.charge("matches", matches * _MATCH_BYTES)
        budget.charge("pair checks", check)
        slots = _most(budget.free - staging, slots_cost)
        budget.charge("stream index", slots_cost(slots) - slots * tuple_bytes)
        return cls(
            run_bytes=run_bytes,
            run_pages=run_pages or _run_pages(run_bytes, largest),
            matches=matches,
            staging_bytes=staging,
            batch_bytes=min(staging, _BATCH_BYTES),
            widest_row=widest,
            check_bytes=check,
            widest_checked=None if checked_row is None else (check - PairCheck.pair_bytes(0)) // 2 - checked_row,
            slots=slots,
            admit_rows=min(slots, most_admitted),
            payload_bytes=budget.free - staging,
            growth=max(_GROWTH, shares.staging, shares.least_staging),
        )

    def require_narrow(self, row_bytes: int, budget: MemoryBudget) -> None:
        """Raise `BudgetError` if a stream row is too wide to be held and emitted."""
        most, growth = min(self.payload_bytes, self.staging_bytes - self.widest_row), self.growth
        if self.widest_checked is not None:
            most, growth = min(most, self.widest_checked), 2 * growth  # a check takes twice the row
        if row_bytes > most:
            least = budget.limit + growth * (row_bytes - most)  # enough for staging, checks and payload
            raise BudgetError(
                f"a stream row of {row_bytes} bytes does not fit in a budget of {budget.limit} bytes, which has room "
                f"for rows of up to {most}. Raise memory to {least} bytes.",
                least_bytes=least,
            )


def _check_cost(check: PairCheck | None, widest: int, wide_tuple: int, tuple_bytes: int) -> tuple[int | None, int]:
    """Return the bytes of R's part in a check (None if the stream's part has a fixed size), and the least for checks.

    The least suffices for a pair of R's widest row and a stream tuple of ``wide_tuple`` bytes, and for several pairs of
    ordinary size at a time.
    """
    if check is None:
        return None, 0
    right = widest if check.right_bytes is None else check.right_bytes
    left = wide_tuple if check.left_bytes is None else check.left_bytes
    ordinary = tuple_bytes + sum(column.fixed_bytes + GUESSED_BYTES for column in check.relation_columns)
    least = max(PairCheck.pair_bytes(left + right), _LEAST_MATCHES * PairCheck.pair_bytes(ordinary))
    return None if check.left_bytes is not None else right, least


def _most_run_rows(relation: AnyRelation, run_bytes: int) -> int:
    """Return the most rows in a run of pages or in a page of rows with null keys."""
    clustered = relation.most_rows(run_bytes)
    return max(clustered, MOST_ROWS) if relation.null_key_rows else clustered


def _run_pages(run_bytes: int, largest: int) -> int:
    """Return the most pages in a run: twice as many as if all were as large as the largest, plus one."""
    return 2 * run_bytes // max(largest, 1) + 1


def page_overhead(relation: AnyRelation) -> int:
    """Return the bookkeeping bytes of a page in memory: the positions of its segments and buffers."""
    return 8 * relation.layout.num_buffers + 48 + 16 * relation.segments


def admit_row_bytes(spec: JoinSpec) -> int:
    """Return the bytes needed to admit a stream tuple, besides its own."""
    return ADMIT_ROW_BYTES if spec.condition.single_codes else _ADMIT_RANGE_BYTES


def _most(room: int, cost: Callable[[int], int]) -> int:
    """Return the most slots whose cost fits in ``room``; costs are nearly linear, so a few guesses find it."""
    low, high = LEAST_SLOTS, _MOST_SLOTS
    fits, over = cost(low), cost(high)
    if over <= room or fits > room:
        return high - 1 if over <= room else low
    while high - low > 1:
        guess = low + (room - fits) * (high - low) // (over - fits)
        for middle in (guess, guess + 1, (low + high) // 2):  # the middle bounds the number of rounds
            if low < middle < high:
                taken = cost(middle)
                low, fits, high, over = (middle, taken, high, over) if taken <= room else (low, fits, middle, taken)
    return low
