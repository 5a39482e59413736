"""The places of pages on disk, counted in pages."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from semistream.kernels.page_slots import number_slots
from semistream.kernels.types import Int32s
from semistream.relation.page_table import PageTable

_BYTES_KEPT = 4
_BYTES_BUILDING = 20  # the order on disk, and what sorting it takes


@dataclass(frozen=True)
class PageSlots:
    """For each page its slot: the slots of a file are numbered as they lie, and those of the next file follow.

    Two pages of one file are ``slot[b] - slot[a]`` apart: the distance of SSIJ IV-D. A file may still hold pages that
    an update has replaced; the page table does not know them, but whoever reads across them reads them too. They take
    as many slots as there would be pages of the file's mean size in their bytes, and at least one.
    """

    table: PageTable
    slot: Int32s

    @classmethod
    def of(cls, table: PageTable) -> PageSlots:
        """Number the slots of a table's pages."""
        slot = np.empty(len(table), np.int32)
        pages_of_file = np.bincount(table.file)
        mean_bytes = np.bincount(table.file, weights=table.nbytes) / np.maximum(pages_of_file, 1)
        number_slots(table.scan_order(), table.file, table.offset, table.nbytes, mean_bytes, slot)
        return cls(table, slot)

    @staticmethod
    def memory_bytes(pages: int) -> int:
        """Most bytes that the slots of a table of ``pages`` take while they are numbered; 4 a page stay."""
        return pages * (_BYTES_KEPT + _BYTES_BUILDING)
