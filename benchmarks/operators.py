"""operators: every named operator over skew, memory and size of R, on this machine's disk and the papers' disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

from benchmarks.harness.bounded_run import (
    SEEK_S,
    SIMULATED_PAGE_BYTES,
    TRANSFER_S,
    ArrivalClock,
    Rate,
    TimedRuns,
    simulated_rate,
)
from benchmarks.harness.grid import Cell, Grid, GridReport, Setting
from benchmarks.harness.orderings import verdicts
from benchmarks.harness.workload import relation, relation_rows, stream_batches, stream_source
from benchmarks.shed_by_cost import shedding_remarks
from semistream import AdaptiveMeshJoin, EngineJoin, MeshFactors, Relation, SemiStreamJoin
from semistream.costs.machine import Machine
from semistream.errors import BudgetError
from semistream.joins.condition.spec import JoinSpec
from semistream.relation import DiskCosts, SimulatedDisk
from semistream.tuning.candidates import OPERATORS
from semistream.tuning.choose_operator import usual_operator

EXPONENTS = (0.0, 0.5, 1.0, 1.5)
SHARES = (0.001, 0.01, 0.05, 0.1, 0.25)
SIZES = (0.1, 1.0)  # relative to the other benchmarks' R: 1 M and 10 M rows
SIMULATED_SIZE = 0.02
FULL_TUPLES = 8_000_000
_SIMULATED_STREAM = 4  # tuples per row of R
_QUICKEST = 0.1  # shortest run at a small scale, relative to a full run

PAPERS_DISK = Machine("papers' disk", DiskCosts(SEEK_S, transfer_s_per_page=TRANSFER_S, follows=0.0))

Run = Callable[[int | None], Rate]
"""Measures a run of an operator, with the given number of tuples if any."""
Measure = Callable[[type[SemiStreamJoin], int], AbstractContextManager[Run]]
"""Opens an operator in a memory, for runs."""


def run(scale: float, folder: Path) -> GridReport:
    auto = compile_kernels(folder)
    title = "This machine's disk, past the operating system's cache, flush included; hot keys anywhere in R"
    real = Grid(title, "tuples/s")
    for size in SIZES:
        _fill(real, relation(folder, relation_rows(scale * size)), partial(on_this_disk, scale))
    simulated = Grid(
        f"Simulated disk: {SEEK_S * 1e3:g} ms a seek, {TRANSFER_S * 1e3:g} ms a page of {SIMULATED_PAGE_BYTES} bytes; "
        "no other time counts; hot keys lie together in R, as in SSIJ (NoPerm) and HYBRID 5",
        "tuples per simulated second",
    )
    small = relation(folder, relation_rows(scale * SIMULATED_SIZE), page_bytes=SIMULATED_PAGE_BYTES)
    _fill(simulated, small, on_simulated_disk)
    remarks = [f"this machine: {line}" for line in verdicts(real, auto)]
    remarks += [f"papers' disk: {line}" for line in verdicts(simulated, auto)]
    remarks += shedding_remarks(scale, folder)
    setup = f"R of 120 B rows, S Zipf over its keys, one match each; bounded runs, results checked; auto is {auto}"
    return GridReport("operators", scale, setup, [real, simulated], remarks)


def compile_kernels(folder: Path) -> str:
    """Run every operator once on a small R to compile its kernels; return the name of the usual operator."""
    small = relation(folder, relation_rows(0))
    (stream,) = stream_batches(small.num_rows, 10_000, 1)
    for kind in OPERATORS.values():
        with kind(small, stream.schema, on="key", memory="64MB") as operator:
            TimedRuns(operator, stream, ArrivalClock(), share=_QUICKEST)
    return usual_operator(JoinSpec.of(small, stream.schema, on="key")).name


def _fill(grid: Grid, r: Relation, measured: Callable[[Relation, float], Measure]) -> None:
    for exponent in EXPONENTS:
        measure = measured(r, exponent)
        for share in SHARES:
            setting = Setting(r.num_rows, exponent, share)
            for name, kind in OPERATORS.items():
                try:
                    with measure(kind, int(r.nbytes * share)) as run:
                        rate = run(None)
                except BudgetError as refused:
                    grid.cells.append(Cell(name, setting, None, least_bytes=refused.least_bytes))
                else:
                    grid.cells.append(Cell(name, setting, rate.per_second, rate.tuples))


def on_this_disk(scale: float, r: Relation, exponent: float, *, seconds: float = 1.0) -> Measure:
    """Measure rates on this disk; ``seconds`` is the duration of a run relative to a full run."""
    source = stream_source(r.num_rows, exponent)
    stream = next(source.batches(max(int(FULL_TUPLES * scale), 10_000)))
    few_keys = exponent > 1  # a cache may come to hold every key of the stream
    fresh = (lambda tuples: next(source.batches(tuples))) if few_keys else None
    share = seconds * min(max(scale, _QUICKEST), 1.0)

    @contextmanager
    def measure(kind: type[SemiStreamJoin], memory: int) -> Iterator[Run]:
        clock = ArrivalClock()
        with kind(r, stream.schema, on="key", memory=memory, clock=clock) as operator:
            yield TimedRuns(operator, stream, clock, share=share, fresh=fresh).rate

    return measure


def on_simulated_disk(
    r: Relation,
    exponent: float,
    *,
    machine: Machine = PAPERS_DISK,
    tuples_per_row: int = _SIMULATED_STREAM,
    anywhere: bool = False,
) -> Measure:
    """Measure rates on the papers' disk; the engine plans for ``machine``, which has no processor costs either."""
    (stream,) = stream_batches(r.num_rows, r.num_rows * tuples_per_row, 1, exponent=exponent, anywhere=anywhere)
    only_reads = MeshFactors(SEEK_S, TRANSFER_S, expire_s=0, stream_s=0, add_s=0, probe_s=0, output_s=0)

    @contextmanager
    def measure(kind: type[SemiStreamJoin], memory: int) -> Iterator[Run]:
        clock, disk = ArrivalClock(), SimulatedDisk(seek_s=SEEK_S, transfer_s=TRANSFER_S)
        options: dict[str, object] = {"factors": only_reads} if issubclass(kind, AdaptiveMeshJoin) else {}
        if issubclass(kind, EngineJoin):
            options["machine"] = machine
        with kind(r, stream.schema, on="key", memory=memory, disk=disk, clock=clock, **options) as operator:
            yield lambda _: simulated_rate(operator, stream, clock)

    return measure
