"""SemiStreamingIndexJoin: SSIJ, which caches R's most useful pages and reads the others for many tuples at once."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Unpack

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semistream.errors import InvalidArgument
from semistream.joins.base import JoinArguments, Results, SemiStreamJoin
from semistream.joins.emitter import Emitter
from semistream.joins.index_memory import RUN_BUFFERS, IndexMemory
from semistream.joins.input_buffer import InputBuffer
from semistream.joins.intake import Intake
from semistream.joins.page_cache import PageCache
from semistream.joins.replacement import replacement
from semistream.joins.row_sizes import row_sizes
from semistream.joins.stream_window import StreamWindow
from semistream.kernels.index_lookup import CACHED, WAITS, look_up, next_wanted
from semistream.kernels.types import Bools, Int32s, Int64s
from semistream.relation import PageRun, PageSequence, PageSlots, Relation, greedy_plan, optimal_plan

_PLANS = ("optimal", "greedy")
_STREAM_INDEX = "stream index"

Pairs = Iterator[tuple[Int64s, Int32s, Int32s]]


class SemiStreamingIndexJoin(SemiStreamJoin):
    """SSIJ (SSIJ III, IV): hot pages of R stay in memory, tuples that need others wait, and are served by one plan.

    Tuples gather in an input buffer (pending phase). An online phase looks a batch of them up in R's index and joins
    those whose pages are cached; the others go to the stream buffer. When enough wait there, a join phase reads the
    pages they need, each once, by the cheapest plan of seeks and sequential reads, joins them, and keeps in memory those
    of the greatest utility. The result is exact.

    =====================  ===================================================================================
    SSIJ                   here
    =====================  ===================================================================================
    DR, its index          ``relation`` and its page table, which is in memory
    IB, IB_thresh          `InputBuffer`, ``input_threshold`` tuples
    SB, SB_thresh          `StreamWindow`, ``stream_threshold`` tuples
    II                     the codes of SB in their order, over the page table: the tuples that wait for a page
                           are those in its range of codes. ``PageCache.waiting`` has the lengths of the lists.
    CR, utility counters   `PageCache`
    M                      ``memory``. Index, page buffers and output take fixed parts; all the rest is one pool
                           for IB, SB and CR (`IndexMemory`): what the stream needs it takes from the cache
    P_u, RP                the pages with ``waiting`` tuples that are not cached, and their ``plan``
    S, T                   the costs of the disk
    maxScan                ``pages_per_read``, by default up to 4 MB of them
    =====================  ===================================================================================

    ``plan`` is "optimal" or "greedy" (SSIJ IV-D), ``cache_policy`` "utility" or "lru", to compare with (VI-D). By
    default the thresholds are those of Table II, or less if the stream would take more than its share of the memory:
    half of the pool for SB, an eighth for IB. Memory that runs short starts the phases earlier.

    Where it departs from the paper:

    - Algorithm 1 joins a tuple that needs several pages with those that are cached at once (lines 3-4), and later with
      the others (13-15). If a page came or went in between it would be met twice or not at all, so here such a tuple
      waits as a whole if any page is missing: the join phase joins it with all its pages, cached or read.
    - Pages are read into buffers of their own, and those to keep are copied into the cache. So a sequence evicts
      nothing, and ToRemove goes before the reading instead of bit by bit (Algorithm 2, lines 5-7).
    - An operator is driven: no tuple comes during a join phase, and ToKeep need not be revised in it (IV-C).
    - A plan is made for all of P_u, unless a sixteenth of the pool cannot hold it: then for stretches of R one after the
      other, each of which costs a seek more per file at most.
    """

    name = "index"

    def __init__(
        self,
        relation: Relation,
        stream_schema: pa.Schema,
        *,
        input_threshold: int | None = None,
        stream_threshold: int | None = None,
        pages_per_read: int | None = None,
        plan: str = "optimal",
        cache_policy: str = "utility",
        **arguments: Unpack[JoinArguments],
    ) -> None:
        super().__init__(relation, stream_schema, **arguments)
        options = {
            "input_threshold": input_threshold,
            "stream_threshold": stream_threshold,
            "pages_per_read": pages_per_read,
        }
        for option, value in options.items():
            if value is not None and value < 1:
                raise InvalidArgument(f"{option} is {value}; it must be at least 1.")
        if plan not in _PLANS:
            raise InvalidArgument(f"plan is {plan!r}; give {' or '.join(map(repr, _PLANS))}.")
        self._policy = replacement(cache_policy)
        self._options = options
        self._plans_greedily = plan == "greedy"
        self._cache: PageCache | None = None
        self._arrange()

    def _arrange(self) -> None:
        """Lay out the memory for the relation and the budget as they are now, while no tuple waits.

        Pages that are cached already stay so if they are in this version too and there is room.
        """
        relation, budget, cache = self.relation, self.budget, self._cache
        if cache is not None and cache.relation is not relation:
            cache.carry_over(relation, relation.pages_kept_from(cache.relation))
        for name, held in budget.by_name.items():
            budget.release(name, held)
        memory = IndexMemory.of(budget, relation, self.spec, **self._options)
