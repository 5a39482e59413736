"""AdaptiveMeshJoin: AMESHJOIN, which changes b and w while it runs to follow its stream with the least memory.

Measure a running join: how fast its stream comes, and how its costs compare with those expected.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Unpack

import pyarrow as pa

from semistream.budget import MemoryBudget
from semistream.costs.machine import DEFAULT_MACHINE
from semistream.errors import JoinInProgress
from semistream.joins.base import JoinArguments
from semistream.joins.condition.spec import JoinSpec
from semistream.joins.engine.operator import known_machine
from semistream.joins.join_facts import JoinFacts
from semistream.joins.loop import Results
from semistream.joins.mesh.cost_model import (
    PARQUET_FACTORS,
    AdaptiveMeshModel,
    MeshCosts,
    MeshFactors,
    MeshParameters,
    MeshTuner,
)
from semistream.joins.mesh.memory import MeshAllocation, MeshMemory
from semistream.joins.mesh.operator import MeshJoin, scan_of, split_memory
from semistream.joins.mesh.scan import CyclicScan
from semistream.joins.parts.options import Check, anything, positive
from semistream.joins.parts.stats import TracePoint
from semistream.relation import AnyRelation, ParquetRelation


class RateMeter:
    """Rows per second of a stream, from the times at which its batches came. What is older counts less: half as much
    for every ``half_life_s`` seconds.

    The rows of a batch are taken to have come since the batch before. Of the first one that is not known, so there is
    no rate until the second.

    >>> meter = RateMeter(half_life_s=10)
    >>> meter.count(500, now_s=3.0)
    >>> meter.rate(now_s=3.0)
    >>> meter.count(200, now_s=5.0)
    >>> meter.rate(now_s=5.0)
    100.0
    """

    def __init__(self, half_life_s: float) -> None:
        self._half_life_s = half_life_s
        self._rows = 0.0
        self._seconds = 0.0
        self._last_s: float | None = None

    def count(self, rows: int, now_s: float) -> None:
        """A batch of ``rows`` came."""
        if self._last_s is None:
            self._last_s = now_s
            return
        self._rows, self._seconds = self._faded(now_s)
        self._rows += rows
        self._last_s = now_s

    def rate(self, now_s: float) -> float | None:
        """Rows per second, with the silence since the last batch; None while it cannot be known."""
        rows, seconds = self._faded(now_s)
        return rows / seconds if seconds > 0 and self._seconds > 0 else None

    def _faded(self, now_s: float) -> tuple[float, float]:
        passed = 0.0 if self._last_s is None else max(now_s - self._last_s, 0.0)
        kept = 2 ** (-passed / self._half_life_s)
        return self._rows * kept, self._seconds * kept + passed


class CostMeter:
    """By how much the time that things take exceeds what was expected of them; what is older counts less: half as much
    for every ``half_life_s`` seconds that were measured since. The first time does not count: kernels are loaded in it.
    """

    def __init__(self, half_life_s: float) -> None:
        self._half_life_s = half_life_s
        self._measured_s = 0.0
        self._expected_s = 0.0
        self._first = True

    def count(self, measured_s: float, expected_s: float) -> None:
        """Something took ``measured_s``; a clock that stood still tells nothing."""
        first, self._first = self._first, False
        if measured_s > 0 and expected_s > 0 and not first:
            kept = 2 ** (-measured_s / self._half_life_s)
            self._measured_s = self._measured_s * kept + measured_s
            self._expected_s = self._expected_s * kept + expected_s

    @property
    def ratio(self) -> float:
        """Measured by expected time; 1 while nothing was measured."""
        return self._measured_s / self._expected_s if self._expected_s else 1.0


_HEADROOM = 1.5  # of the service rate over the arrival rate
_TOLERANCE = 0.1  # of a change in load that is not worth new parameters


class AdaptiveMeshJoin(MeshJoin):
    """AMESHJOIN (MESH 3.3, Fig. 6): a `MeshJoin` whose b and w may differ from one iteration to the next.

    It measures how fast the stream comes and how long its iterations take. For each iteration it takes the b and w that
    sustain this rate with the least memory; if none within the budget do, those of the greatest service rate.
    Buffers and window take only the bytes that b and w need, and ``budget.used`` shows it. ``stats.trace`` tells what
    it ran with, since when, and at which rates. However b and w change, each tuple meets each page of R once, and the
    result is exact (MESH Theorem 3.2).

    =================  =====================================================================================
    MESH               here
    =================  =====================================================================================
    b, w               ``pages_per_step``, ``rows_per_step``
    currPage           ``CyclicScan.position`` modulo N_R: it counts on, so that no two scans are mixed up
    (w, startPage)     `Packet`: the tuples, and the position at which they ``entered``
    tuning module      `MeshTuner` with `MeshMemory` for (1) and `MeshCosts` for (2), (3) and (5)
    c_I/O, c_E, ...    ``factors``: `MeshFactors`
    lambda             `RateMeter`: rows pushed per second of ``clock``, half of it from the last ``half_life_s``
    mu                 ``TracePoint.service_rate``
    =================  =====================================================================================

    Where it departs from the paper, and why:

    - Fig. 6 looks after each page whether the oldest packet is done. Here the pages up to that point, or to the end of
      the iteration, are joined at once, and packets are let go between such parts: the same, without a look per page.
    - While it tunes itself, it does several loops of Fig. 6 at once if a scan has many (`MeshMemory.loops`): the tuples
      of so many times w enter as one packet and b pages are joined as often. The pages read at once, the window and the
      rate stay those of b and w, but the number of packets, which costs time, stays small.
    - Pages are read ahead, so a run that was asked for with an older b may serve several iterations, or a part of one.
      Each iteration joins b pages all the same (fewer only if the window is empty before).
    - It tunes for 1.5 times the measured rate. With equality in (5) it could never work off what a burst has left, and
      a stream that is pushed as fast as it is taken would never be seen to be faster than the join.
    - The sum of the cost factors is corrected by the time that iterations really take, with what the consumer of the
      results takes; so the factors need not fit the machine. New parameters are sought when rate times correction has
      changed by a tenth.
    - An iteration starts when the one before has ended, and its w tuples enter as they come. Hence its b and w (Fig. 6,
      line 3) are chosen then, and again if the rate has changed when a batch comes or it is asked to step.
    - If no b and w within the budget sustain the rate, w of the greatest service rate only sets how many tuples the
      window holds, and they enter as soon as there is room: as many in a scan, but in fewer packets, which costs less.
      So it is while no rate is known (until the second batch), with all of the budget.
    - Plain Parquet is decoded page by page, in memory that its row groups set: there b costs nothing, and only w is
      tuned. b is as many pages as make the few packets that are said above.
    - An operator is driven. If w tuples have not come when it is asked to step, it joins b pages with those it has; if
      more than w are pushed, it iterates until it has taken them. MESH's load shedding is not its business.
    """

    name = "adaptive_mesh"
    options: ClassVar[Mapping[str, Check]] = {"factors": anything, "half_life_s": positive, **MeshJoin.options}
    _parameters: MeshParameters

    def __init__(
        self,
        relation: AnyRelation,
        stream: pa.Schema | JoinSpec,
        *,
        factors: MeshFactors | None = None,
        half_life_s: float = 2.0,
        rows_per_step: int | None = None,
        pages_per_step: int | None = None,
        **arguments: Unpack[JoinArguments],
    ) -> None:
        self.require_options(
            {"half_life_s": half_life_s, "rows_per_step": rows_per_step, "pages_per_step": pages_per_step}
        )
        self._given_factors = factors or (PARQUET_FACTORS if isinstance(relation, ParquetRelation) else None)
        self._machine = (None if self._given_factors else known_machine(relation, arguments)) or DEFAULT_MACHINE
        self._meter, self._timing = RateMeter(half_life_s), CostMeter(half_life_s)
        self._rate: float | None = None
        self._tuned_load: float | None = None
        self._tunes_itself = rows_per_step is None and pages_per_step is None
        self._meetings = 0  # of a tuple with a page
        self._by_user: tuple[int | None, int | None] = rows_per_step, pages_per_step
        super().__init__(relation, stream, **arguments)

    @classmethod
    def model(cls, facts: JoinFacts, memory: MemoryBudget) -> AdaptiveMeshModel:
        """AMESHJOIN with the memory for its b and w."""
        relation, spec = facts.relation, facts.spec
        source = scan_of(relation, spec)
        split = split_memory(memory, relation, spec, source)
        return AdaptiveMeshModel(MeshMemory.of(memory, relation, spec, split, source, num_pages=relation.num_pages))

    def arrange(self) -> None:
        super().arrange()
        self._factors = self._given_factors or self._known_factors()
        memory = MeshMemory.of(
            self._memory, self.relation, self.spec, self._split, self._source, num_pages=self._scan.num_pages
        )
        reader = self._scan.reader if isinstance(self._scan, CyclicScan) else None
        self._allocation = MeshAllocation(memory, self._memory, reader, self._window, self._intake)
        self._rows_per_page = self.relation.num_rows / max(self._scan.num_pages, 1)
        self._tuned_load = None
        self._iteration_start = 0
        self._loops = 1  # of Fig. 6 that are done at once
        self._mark_s = 0.0  # from when on time was not counted yet, and
        self._busy_s = 0.0  # what was before, since the last iteration
        self._counted_results = self.stats.outputs
        pages = memory.fixed_pages or max(self._split.run_bytes // memory.page_bytes, 1)
        rows_given, pages_given = (None, None) if self._tunes_itself else self._by_user
        self._fix(rows_given or self._split.slots, pages_given or pages)

    @property
    def pages_per_step(self) -> int:
        """b: pages that a loop of Fig. 6 joins."""
        return self._parameters.pages_per_step

    @property
    def rows_per_step(self) -> int:
        """w: most tuples that enter in a loop."""
        return self._parameters.rows_per_step

    @property
    def runs(self) -> int:
        """Loops that make one scan of R, as b is now: N_R / b."""
        return -(-self._scan.num_pages // self.pages_per_step)

    def set_parameters(
        self, *, pages_per_step: int | None = None, rows_per_step: int | None = None, retune: bool = False
    ) -> None:
        """Set b, w or both by hand, from this iteration on; what is not given stays as it is.

        The join then keeps them, and an iteration is one loop of Fig. 6. With ``retune`` it tunes itself again, from
        the next batch or step on. b is at most all of R. If the budget has too little room for them, b pages are read
        in several requests and the window takes fewer tuples. Those of plain Parquet always are.
        """
        if self._busy is not None:
            raise JoinInProgress(
                f"the results of {self._busy}() have not been consumed to their end; b and w cannot change until then."
            )
        self.require_options({"rows_per_step": rows_per_step, "pages_per_step": pages_per_step})
        self._tunes_itself, self._tuned_load = retune, None
        rows, pages = rows_per_step or self.rows_per_step, pages_per_step or self.pages_per_step
        self._by_user = rows, pages
        self._fix(rows, pages)

    def _fix(self, rows: int, pages: int) -> None:
        self._use(MeshParameters(min(pages, max(self._scan.num_pages, 1)), rows))

    def feed(self, batch: pa.RecordBatch) -> Results:
        now_s = self._clock()
        self._meter.count(batch.num_rows, now_s)
        self._retune(self._meter.rate(now_s))
        yield from self._timed(super().feed(batch))

    def turn(self) -> Results:
        self._retune(self._meter.rate(self._clock()))
        yield from self._timed(super().turn())

    def drain(self) -> Results:
        yield from self._timed(super().drain())

    def _timed(self, results: Results) -> Results:
        """Count the time of a call, for the iterations in it and the next one."""
        self._mark_s = self._clock()
        yield from results
        self._busy_s += self._clock() - self._mark_s

    def _iterate(self) -> Results:
        """One iteration of MESH Fig. 6, or several at once: b pages each, whatever b was when they were read."""
        if not self._window.packets:
            return
        self.stats.steps += 1
        start, packets = self._scan.position, len(self._window.packets)
        rows, results = self._admitted_now, self._counted_results
        self._iteration_start, self._admitted_now = start, 0
        end = start + self._loops * self.pages_per_step
        while self._window.packets and self._scan.position < end:
            tuples, before = self._window.held, self._scan.position
            yield from self._join_next(end)
            self._meetings += tuples * (self._scan.position - before)
        pages = self._scan.position - start
        expected_s = self._costs().expected_s(
            loops=-(-pages // self.pages_per_step),
            pages=pages,
            rows=rows,
            results=self.stats.outputs - results,
            packets=packets - len(self._window.packets),
        )
        now_s, self._counted_results = self._clock(), self.stats.outputs
        self._timing.count(self._busy_s + now_s - self._mark_s, expected_s)
        self._busy_s, self._mark_s = 0.0, now_s
        self._use(self._next_parameters())

    def _run_end(self, start: int) -> int:
        """Where the loop that holds page counter ``start`` will end if b stays as it is."""
        return start + self.pages_per_step - (start - self._iteration_start) % self.pages_per_step

    def _retune(self, rate: float | None) -> None:
        """Take b and w from the tuning part for a stream of another rate."""
        self._rate = rate
        parameters = self._next_parameters()
        if parameters != self._parameters:
            self._use(parameters)

    def _next_parameters(self) -> MeshParameters:
        """The tuning part: b and w for the iteration at hand."""
        if not self._tunes_itself or self._rate is None or not self.relation.num_pages:
            return self._parameters
        costs = self._costs()
        load = self._rate * costs.correction
        if self._tuned_load is not None and abs(load - self._tuned_load) <= _TOLERANCE * self._tuned_load:
            return self._parameters
        self._tuned_load = load
        memory = self._allocation.memory
        tuner = MeshTuner(costs, memory)
        least = tuner.least_memory(_HEADROOM * self._rate)
        if least is not None:
            return least
        greatest = tuner.greatest_rate()
        slots = memory.slots(greatest.pages_per_step, greatest.rows_per_step)
        return MeshParameters(greatest.pages_per_step, slots)

    def _use(self, parameters: MeshParameters) -> None:
        """Run with these parameters, with the memory for them, and note in the trace if they are new."""
        changed = not self.stats.trace or parameters != self._parameters
        pages, rows = parameters.pages_per_step, parameters.rows_per_step
        self._parameters = parameters
        self._loops = self._allocation.memory.loops(pages) if self._tunes_itself else 1
        self._rows_per_step = self._loops * rows
        if self.relation.num_pages:
            self._allocation.settle(pages, rows, at_once=self._rows_per_step, admitted=self._admitted_now)
        if changed:
            self.stats.trace.append(self._trace_point())

    def _trace_point(self) -> TracePoint:
        memory, pages, rows = self._allocation.memory, self.pages_per_step, self.rows_per_step
        served = min(rows, memory.most_rows(pages)) if self.relation.num_pages else rows
        return TracePoint(
            time_s=self._clock(),
            pages_per_step=pages,
            rows_per_step=rows,
            rate=self._rate,
            service_rate=MeshTuner(self._costs(), memory).service_rate(pages, max(served, 0)),
            memory_bytes=min(memory.total(pages, rows), memory.pool),
        )

    def _known_factors(self) -> MeshFactors:
        """Those of this machine if it was calibrated, else the usual ones."""
        relation = self.relation
        if self._machine is DEFAULT_MACHINE or not relation.num_pages:
            return MeshFactors()
        page_bytes = relation.nbytes / relation.num_pages
        return MeshFactors.of(self._machine, page_bytes=page_bytes, values_per_result=len(self.spec.payload))

    def _costs(self) -> MeshCosts:
        """The cost model, with as many results for a tuple as there were so far for one that has met all pages."""
        pages = self._scan.num_pages
        return MeshCosts(
            self._factors,
            rows_per_page=self._rows_per_page,
            results_per_row=self.stats.outputs * pages / self._meetings if self._meetings else 1.0,
            correction=self._timing.ratio,
        )
