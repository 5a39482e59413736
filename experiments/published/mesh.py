"""MESH (1): the memory of MESHJOIN.

N. Polyzotis, S. Skiadopoulos, P. Vassiliadis, A. Simitsis & N.-E. Frantzell, Meshing Streaming Updates with Persistent
Data in an Active Data Warehouse, TKDE 2008, section 3.2, equation (1). `AdaptiveMeshJoin` tunes itself by
equations (2) to (5) (`semistream.joins.mesh.cost_model`). `semistream.tuning.papers.MESH_MACHINE` has the factors of
the paper's machine.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from semistream.errors import require_numbers


@dataclass(frozen=True)
class PublishedMeshMemory:
    """Memory of MESHJOIN by MESH (1), in the bytes of the paper's own implementation.

    It is a `MeshMemoryModel`, so `MeshTuner` can find the paper's b and w. `MeshJoin` packs tuples and reads ahead, and
    has another memory layout (`MeshMemory`).

    ======================  ======================================================================================
    MESH                    here
    ======================  ======================================================================================
    M_max, N_R, v_P, v_S    ``limit``, ``num_pages``, ``page_bytes``, ``tuple_bytes``
    f                       ``fudge``: bytes of a tuple in the hash table, as a multiple of ``tuple_bytes``
    sizeof(ptr)             ``pointer_bytes``
    ======================  ======================================================================================

    The paper has w * N_R / b tuples in the window, as a real number; here a scan has ceil(N_R / b) loops.

    >>> PublishedMeshMemory(limit=10**6, num_pages=100, page_bytes=4096, tuple_bytes=20).total(10, 50)
    55960
    """

    limit: int
    num_pages: int
    page_bytes: int
    tuple_bytes: int
    fudge: float = 1.0
    pointer_bytes: int = 8

    def __post_init__(self) -> None:
        require_numbers(self, *(field.name for field in fields(self)))

    @property
    def fixed_pages(self) -> None:
        """None: b is chosen."""

    def loops(self, pages: int) -> int:  # noqa: ARG002
        """Return 1: the paper reads for one loop at a time."""
        return 1

    def total(self, pages: int, rows: int) -> int:
        """Return M of MESH (1) in bytes."""
        return round(pages * self.page_bytes + rows * self._row_bytes(pages))

    def fits(self, pages: int, rows: int) -> bool:
        """Return True if M <= M_max."""
        return self.total(pages, rows) <= self.limit

    def most_rows(self, pages: int) -> float:
        """Return the largest w for b = ``pages``: MESH (1) with equality, solved for w."""
        return (self.limit - pages * self.page_bytes) / self._row_bytes(pages)

    def _row_bytes(self, pages: int) -> float:
        """Return the bytes per tuple of w: one tuple in the buffer, and one for each loop of a scan in H and Q."""
        loops = -(-self.num_pages // pages)
        return self.tuple_bytes + loops * (self.pointer_bytes + self.fudge * self.tuple_bytes)
