"""How MeshJoin splits its budget over the index, the page buffers, the window and the output."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from semistream.budget import MemoryBudget
from semistream.joins.row_sizes import fixed_row_bytes
from semistream.joins.spec import JoinSpec
from semistream.joins.stream_window import StreamWindow
from semistream.relation import Relation, RunReader

_RUN_BYTES = 4 << 20
_STAGING_BYTES = 8 << 20
_MATCH_BYTES = 64  # a pair of slot, page and row, its size, and its place while pairs are ordered and verified
_LEAST_MATCHES = 64
_LEAST_SLOTS = 16
_ADMIT_ROWS = 1 << 16
_GUESSED_BYTES = 32  # of a string or nested value, until real ones are seen
_ADMIT_ROW_BYTES = 40  # a tuple's code, mask, size and slot while it is admitted


@dataclass(frozen=True)
class MeshMemory:
    """The parts of the budget, in bytes and in what they hold. Together they never exceed it.

    ``widest_row`` bounds a row of R: it cannot be wider than the largest page.
    """

    run_bytes: int
    matches: int
    staging_bytes: int
    widest_row: int
    slots: int
    admit_rows: int
    payload_bytes: int

    @classmethod
    def split(cls, budget: MemoryBudget, relation: Relation, spec: JoinSpec, pages_per_step: int | None) -> MeshMemory:
        """Split what there is, and charge all that is allocated up front."""
        table, layout = relation.table, relation.layout
        largest = int(table.nbytes.max(initial=0))
        index = table.memory_bytes + 16 * len(table)  # the page table; the scan's order and runs
        row_bytes = _expected_row_bytes(spec)
        widest = 2 * largest + 4096  # gathered values and their validity take less than twice the page
        least_staging = widest + 4 * row_bytes + 4096

        def run_cost(run_bytes: int) -> int:
            pages = -(-run_bytes // max(largest // 2, 1)) + 1
            return RunReader.memory_bytes(run_bytes) + 2 * pages * (8 * layout.num_buffers + 64)

        def window_cost(slots: int) -> int:
            admit = min(slots, _ADMIT_ROWS) * _ADMIT_ROW_BYTES
            return StreamWindow.index_bytes(slots) + slots * (row_bytes + 8) + admit

        asked = largest * pages_per_step if pages_per_step is not None else largest
        least = index + run_cost(asked) + _LEAST_MATCHES * _MATCH_BYTES + least_staging + window_cost(_LEAST_SLOTS)
        budget.require(least, purpose=f"a mesh join with {relation.path}")

        spare = budget.limit - least
        run_bytes = asked if pages_per_step is not None else max(largest, min(_RUN_BYTES, spare // 12))
        staging = least_staging + min(_STAGING_BYTES, spare // 6)
        matches = max(_LEAST_MATCHES, min(1 << 16, spare // 12 // _MATCH_BYTES))
        fixed = index + run_cost(run_bytes) + matches * _MATCH_BYTES + staging
        left = budget.limit - fixed
        slots = _most_slots(left, window_cost)
        budget.charge("page table", index)
        budget.charge("page buffers", run_cost(run_bytes))
        budget.charge("matches", matches * _MATCH_BYTES)
        budget.charge("window index", window_cost(slots) - slots * row_bytes)
        payload = budget.free - staging
        return cls(run_bytes, matches, staging, widest, slots, min(slots, _ADMIT_ROWS), payload)


def _expected_row_bytes(spec: JoinSpec) -> int:
    """Bytes of a stream tuple in the window, as far as its types tell."""
    irregular = sum(1 for field in spec.stream_schema if field.type.num_buffers != 2 or field.type.num_fields)
    return fixed_row_bytes(spec.stream_schema) + irregular * _GUESSED_BYTES


def _most_slots(room: int, cost: Callable[[int], int]) -> int:
    """The most slots whose cost fits ``room``."""
    low, high = _LEAST_SLOTS, _LEAST_SLOTS
    while cost(high) <= room and high < 1 << 31:
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if cost(middle) <= room else (low, middle)
    return low
