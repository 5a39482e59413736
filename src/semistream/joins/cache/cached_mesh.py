"""CachedMeshJoin: CMESHJOIN, the front stage before MESHJOIN."""

from __future__ import annotations

from semistream.joins.cache.front_stage import FrontStage
from semistream.joins.mesh.operator import MeshJoin


class CachedMeshJoin(FrontStage):
    """CMESHJOIN (FRONT 3): a `FrontStage` in front of `MeshJoin`.

    The result is exact, and the cache and MESHJOIN share one budget. See `FrontStage` for the mapping of the paper's
    symbols.

    Parameters
    ----------
    cache_share : float
        Share for the cache, from 0 to 0.9, of the memory beyond what MESHJOIN needs. Default: 0.25.
    **arguments
        Other parameters are those of `FrontStage` and `SemiStreamJoin`.

    Examples
    --------
    >>> import tempfile, pyarrow as pa
    >>> from semistream import Relation
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     products = Relation.build(pa.table({"id": [1, 2], "name": ["tea", "cola"]}), f"{folder}/r", key="id")
    ...     orders = pa.record_batch({"id": [2] * 9})
    ...     with CachedMeshJoin(products, orders.schema, on="id", memory="2MB") as join:
    ...         for _ in range(2):
    ...             rows = sum(batch.num_rows for batch in [*join.push(orders), *join.flush()])
    ...         rows, join.stats.cache_hits
    (9, 9)

    References
    ----------
    FRONT 3.1 (Algorithm 1), FRONT 3.2 (cost model).
    """

    name = "cmesh"
    wraps = MeshJoin
