"""AdaptiveMeshJoin (AMESHJOIN): changes b and w while it runs, to sustain its stream with the least memory.

`RateMeter` measures the rate of the stream, and `CostMeter` the ratio of measured to expected costs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Unpack

import pyarrow as pa

from semistream.budget import MemoryBudget
from semistream.costs.machine import DEFAULT_MACHINE
from semistream.errors import JoinInProgress
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
from semistream.joins.requirements import JoinArguments
from semistream.relation import AnyRelation, ParquetRelation


class RateMeter:
    """Rate of a stream in rows per second, measured from the arrival times of its batches.

    Older rows count less: half as much for every ``half_life_s`` seconds. The rows of a batch count as having come
    since the batch before; as that is unknown for the first batch, there is no rate until the second.

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
        """Record the arrival of a batch of ``rows`` rows."""
        if self._last_s is None:
            self._last_s = now_s
            return
        self._rows, self._seconds = self._faded(now_s)
        self._rows += rows
        self._last_s = now_s

    def rate(self, now_s: float) -> float | None:
        """Return rows per second, including the silence since the last batch; None while unknown."""
        rows, seconds = self._faded(now_s)
        return rows / seconds if seconds > 0 and self._seconds > 0 else None

    def _faded(self, now_s: float) -> tuple[float, float]:
        passed = 0.0 if self._last_s is None else max(now_s - self._last_s, 0.0)
        kept = 2 ** (-passed / self._half_life_s)
        return self._rows * kept, self._seconds * kept + passed


class CostMeter:
    """Ratio of measured to expected time.

    Older measurements count less: half as much for every ``half_life_s`` seconds measured since. The first measurement
    is ignored, because kernels are loaded in it.
    """

    def __init__(self, half_life_s: float) -> None:
        self._half_life_s = half_life_s
        self._measured_s = 0.0
        self._expected_s = 0.0
        self._first = True

    def count(self, measured_s: float, expected_s: float) -> None:
        """Record a measurement; one of zero seconds is ignored, as the clock stood still."""
        first, self._first = self._first, False
        if measured_s > 0 and expected_s > 0 and not first:
            kept = 2 ** (-measured_s / self._half_life_s)
            self._measured_s = self._measured_s * kept + measured_s
            self._expected_s = self._expected_s * kept + expected_s

    @property
    def ratio(self) -> float:
        """Measured divided by expected time; 1 before any measurement."""
        return self._measured_s / self._expected_s if self._expected_s else 1.0


_HEADROOM = 1.5  # service rate to tune for, in multiples of the arrival rate
_TOLERANCE = 0.1  # relative change in load that does not warrant new parameters


class AdaptiveMeshJoin(MeshJoin):
    """AMESHJOIN: a `MeshJoin` whose b and w may differ from one iteration to the next.

    The operator measures the rate of the stream and the time of its iterations. For each iteration it chooses the b and
    w that sustain this rate with the least memory; if no choice within the budget does, those of the greatest service
    rate. Buffers and window take only the bytes that b and w need, as ``budget.used`` shows. ``stats.trace`` records
    the parameters, the time of each change, and the rates. However b and w change, each tuple meets each page of R
    once, and the result is exact (MESH Theorem 3.2).

    =================  =====================================================================================
    MESH               here
    =================  =====================================================================================
    b, w               ``pages_per_step``, ``rows_per_step``
    currPage           ``CyclicScan.position`` modulo N_R; the position never wraps, so scans stay distinct
    (w, startPage)     `Packet`: the tuples, and the position at which they ``entered``
    tuning module      `MeshTuner` with `MeshMemory` for (1) and `MeshCosts` for (2), (3) and (5)
    c_I/O, c_E, ...    ``factors``: `MeshFactors`
    lambda             `RateMeter`: rows pushed per second of ``clock``
    mu                 ``TracePoint.service_rate``
    =================  =====================================================================================

    The operator departs from the paper in these points:

    - Fig. 6 checks after each page whether the oldest packet is finished. Here the pages up to that point, or to the
      end of the iteration, are joined at once, and packets expire between such parts. The effect is the same, without a
      check per page.
    - While it tunes itself, it does several loops of Fig. 6 at once if a scan has many (`MeshMemory.loops`): the tuples
      of all these loops enter as one packet, and as many times b pages are joined. The pages read at once, the window
      and the rate remain those of b and w, but there are fewer packets, each of which costs time.
    - Pages are read ahead, so a run requested with an older b may serve several iterations or a part of one. Each
      iteration still joins b pages (fewer only if the window becomes empty).
    - It tunes for 1.5 times the measured rate. With equality in (5) it could never work off the backlog of a burst, and
      a stream pushed as fast as it is taken would never appear faster than the join.
    - The sum of the cost factors is corrected by the measured time of iterations, including that of the consumer of the
      results, so the factors need not fit the machine. New parameters are sought when rate times correction has changed
      by a tenth.
    - An iteration starts when the previous one has ended, and its w tuples enter as they come. Its b and w (Fig. 6,
      line 3) are chosen then, and again if the rate has changed at the next push or step.
    - If no b and w within the budget sustain the rate, the w of the greatest service rate only sets the size of the
      window, and tuples enter as soon as there is room: as many per scan, but in fewer packets, which costs less. The
      same holds, with the whole budget, while no rate is known (until the second batch).
    - Plain Parquet is decoded page by page, in memory set by its row groups. There b costs no memory, and only w is
      tuned; b is the number of pages that keeps packets few, as above.
    - The caller drives the operator. If fewer than w tuples have come at a step, it joins b pages with those it has; if
      more than w are pushed, it iterates until it has taken them in. It does not shed load as MESH proposes.

    Parameters
    ----------
    relation : Relation or ParquetRelation
        The relation R, in any order.
    stream : pyarrow.Schema or JoinSpec
        The columns of the stream, or a resolved join.
    factors : MeshFactors, optional
        Cost factors, in seconds. Default: those of the calibrated machine, or else the defaults of `MeshFactors`.
    half_life_s : float
        Seconds after which a measurement of the rate or of costs counts half. Default: 2.
    rows_per_step, pages_per_step : int, optional
        Fixed w and b. Default: the operator tunes itself.
    **arguments
        Other parameters are those of `SemiStreamJoin`.

    Examples
    --------
    >>> import itertools, tempfile
    >>> from semistream import Relation
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     stores = Relation.build(pa.table({"id": [1, 2], "city": ["Athens", "Bonn"]}), f"{folder}/r", key="id")
    ...     sales, clock = pa.record_batch({"store": [2] * 50}), itertools.count().__next__
    ...     with AdaptiveMeshJoin(stores, sales.schema, on={"store": "id"}, memory="1MB", clock=clock) as join:
    ...         results = [batch for _ in range(4) for batch in join.push(sales)] + list(join.flush())
    ...     before, after = join.stats.trace[0], join.stats.trace[-1]
    >>> sum(batch.num_rows for batch in results), before.rate, after.rate < 100
    (200, None, True)
    >>> after.memory_bytes < before.memory_bytes / 10  # a slow stream needs little memory
    True

    References
    ----------
    MESH 3.3: Fig. 6, equations (1) to (5), Theorem 3.2.
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
        self._meetings = 0  # meetings of a tuple with a page
        self._by_user: tuple[int | None, int | None] = rows_per_step, pages_per_step
        super().__init__(relation, stream, **arguments)

    @classmethod
    def model(cls, facts: JoinFacts, memory: MemoryBudget) -> AdaptiveMeshModel:
        """Return the cost model with the memory for b and w."""
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
        self._loops = 1  # loops of Fig. 6 done at once
        self._mark_s = 0.0  # start of the time not counted yet
        self._busy_s = 0.0  # time counted before that, since the last iteration
        self._counted_results = self.stats.outputs
        pages = memory.fixed_pages or max(self._split.run_bytes // memory.page_bytes, 1)
        rows_given, pages_given = (None, None) if self._tunes_itself else self._by_user
        self._fix(rows_given or self._split.slots, pages_given or pages)

    @property
    def pages_per_step(self) -> int:
        """Pages joined by a loop of Fig. 6 (b)."""
        return self._parameters.pages_per_step

    @property
    def rows_per_step(self) -> int:
        """Most tuples that enter in a loop (w)."""
        return self._parameters.rows_per_step

    @property
    def runs(self) -> int:
        """Loops of one scan of R with the current b: N_R / b."""
        return -(-self._scan.num_pages // self.pages_per_step)

    def set_parameters(
        self, *, pages_per_step: int | None = None, rows_per_step: int | None = None, retune: bool = False
    ) -> None:
        """Set b, w or both from this iteration on; a value not given stays unchanged.

        The join then keeps them, and an iteration is one loop of Fig. 6. With ``retune`` it tunes itself again from the
        next batch or step on. b is limited to all of R. If they need more than the budget, the b pages are read in
        several requests, as those of plain Parquet always are, and the window takes fewer tuples.
        """
        if self._busy is not None:
            raise JoinInProgress(
                f"the results of {self._busy}() have not been consumed completely; b and w cannot change until then."
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
        """Measure the time of a call, for the iterations in it and the next one."""
        self._mark_s = self._clock()
        yield from results
        self._busy_s += self._clock() - self._mark_s

    def _iterate(self) -> Results:
        """Do one iteration of MESH Fig. 6, or several at once, of b pages each, however they were read."""
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
        """Return the end of the loop that contains page counter ``start``, with the current b."""
        return start + self.pages_per_step - (start - self._iteration_start) % self.pages_per_step

    def _retune(self, rate: float | None) -> None:
        """Choose b and w for a stream of this rate."""
        self._rate = rate
        parameters = self._next_parameters()
        if parameters != self._parameters:
            self._use(parameters)

    def _next_parameters(self) -> MeshParameters:
        """Return b and w for the current iteration: MESH's tuning module."""
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
        """Run with these parameters and the memory for them; add changes to the trace."""
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
        """Return the factors of this machine if it was calibrated, else the defaults."""
        relation = self.relation
        if self._machine is DEFAULT_MACHINE or not relation.num_pages:
            return MeshFactors()
        page_bytes = relation.nbytes / relation.num_pages
        return MeshFactors.of(self._machine, page_bytes=page_bytes, values_per_result=len(self.spec.payload))

    def _costs(self) -> MeshCosts:
        """Return the cost model, with the results per tuple measured so far."""
        pages = self._scan.num_pages
        return MeshCosts(
            self._factors,
            rows_per_page=self._rows_per_page,
            results_per_row=self.stats.outputs * pages / self._meetings if self._meetings else 1.0,
            correction=self._timing.ratio,
        )
