"""Joins in a row against the outcomes of each row by definition: every kind, several partners, any batches."""

from collections import Counter
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from semistream import MeshJoin, SweepJoin
from semistream.pipelines.steps.chain import ROW, Chain
from semistream.pipelines.task.batch_task import SINCE
from tests.pipelines.steps.chain_model import STREAM, Step, build_links, build_relations, follow


@pytest.fixture(scope="module")
def relations(tmp_path_factory):
    return build_relations(tmp_path_factory.mktemp("relations"))


@st.composite
def step_lists(draw):
    steps, columns = [], ["a", "b"]
    for relation in draw(st.permutations(range(3)))[: draw(st.integers(1, 3))]:
        how = draw(st.sampled_from(["inner", "semi", "anti", "first"]))
        missed = draw(st.sampled_from(["end", "wait", "stall", *(["keep"] if how == "inner" else [])]))
        flags = how == "first" and draw(st.booleans())
        keeps = not flags and draw(st.booleans())
        steps.append(Step(relation, draw(st.sampled_from(columns)), how, missed, keeps, flags))
        if how == "inner":
            columns.append(f"v{relation}")
    return steps


values = st.one_of(st.none(), st.integers(0, 5))
streams = st.lists(st.tuples(values, values), max_size=25)
cuts = st.lists(st.integers(0, 25), max_size=3)


def batches_of(stream, at):
    table = pa.table(
        {
            "a": pa.array([a for a, _ in stream], pa.int64()),
            "b": pa.array([b for _, b in stream], pa.int64()),
            ROW: pa.array(range(len(stream)), pa.int64()),
            SINCE: pa.array([0] * len(stream), pa.int64()),
        },
        schema=STREAM,
    )
    ends = sorted({0, len(stream), *(each for each in at if each < len(stream))})
    parts = [table.slice(begin, end - begin) for begin, end in pairwise(ends)]
    return [part.combine_chunks().to_batches()[0] for part in parts if part.num_rows]


def stopped(results, steps):
    """Count rows by the step they stopped at; rows not joined by all steps have their columns before that step."""
    found = Counter()
    for each in results:
        width = None if each.outcome == "joined" else len(entering(steps, each.link))
        rows = each.rows if width is None else each.rows.select(range(width))
        assert rows.num_rows
        found.update((each.outcome, each.link, tuple(sorted(row.items()))) for row in rows.to_pylist())
    return found


def entering(steps, link):
    names = list(STREAM.names)
    for n, step in enumerate(steps[:link]):
        names += [f"v{step.relation}"] if step.how == "inner" else []
        names += ([f"key_{n}"] if step.keeps else []) + ([f"twice_{n}"] if step.flags else [])
    return names


def by_definition(stream, steps):
    expected = Counter()
    for number, (a, b) in enumerate(stream):
        row = {"a": a, "b": b, ROW: number, SINCE: 0}
        expected.update((outcome, at, tuple(sorted(row.items()))) for outcome, at, row in follow(row, steps))
    return expected


@settings(deadline=None, max_examples=80)
@given(steps=step_lists(), stream=streams, at=cuts, operator=st.sampled_from([MeshJoin, SweepJoin]))
@example(steps=[Step(1, "a", "inner"), Step(2, "v1", "semi")], stream=[(2, 0)], at=[], operator=MeshJoin)
def test_a_chain_does_what_each_link_says(relations, steps, stream, at, operator):
    chain = Chain(build_links(steps, relations, operator))
    results = [each for batch in batches_of(stream, at) for each in chain.push(batch)]
    results += chain.flush()
    assert stopped(results, steps) == by_definition(stream, steps)


class HalfInMemory:
    """A join that answers rows of even numbers, or of those that it was asked for before, and gives back the others."""

    def __init__(self, join):
        self._join = join

    def answer(self, batch):
        even = pc.equal(pc.bit_wise_and(batch.column(ROW), 1), 0)
        for results in (*self._join.push(batch.filter(even)), *self._join.flush()):
            yield results, True
        yield batch.filter(pc.invert(even)), False

    def push(self, batch):
        return self._join.push(batch)

    def flush(self):
        return self._join.flush()


@settings(deadline=None, max_examples=40)
@given(steps=step_lists(), stream=streams, at=cuts)
def test_deferred_rows_continue_as_if_never_deferred(relations, steps, stream, at):
    links = [(link, HalfInMemory(join)) for link, join in build_links(steps, relations, MeshJoin)]
    deferring = Chain(links, defers=True)
    results = [each for batch in batches_of(stream, at) for each in deferring.push(batch)]
    results += deferring.flush()
    deferred = [each for each in results if each.outcome == "deferred" and each.rows.num_rows]
    done = [each for each in results if each.outcome != "deferred"]
    later = Chain(build_links(steps, relations, MeshJoin))
    done += [after for each in deferred for after in later.push(each.rows, each.link)]
    done += later.flush()
    assert stopped(done, steps) == by_definition(stream, steps)


@pytest.mark.parametrize("flags", [False, True])
def test_stalled_rows_are_separated_by_the_decision(relations, flags):
    chain = Chain(build_links([Step(0, "a", "first", "stall", flags=flags)], relations, MeshJoin))
    (batch,) = batches_of([(1, 0), (1, 1), (3, 2)], [])
    (stalled,) = [*chain.push(batch), *chain.flush()]
    assert stalled.outcome == "stalled"
    results = list(chain.resume(stalled.rows, 0, pa.array([True, False, True])))
    found = {outcome: [] for outcome in ("joined", "duplicate")}
    for each in results:
        found[each.outcome] += each.rows.column("b").to_pylist()
    assert found == ({"joined": [0, 1, 2], "duplicate": []} if flags else {"joined": [0, 2], "duplicate": [1]})
    if flags:
        assert results[0].rows.column("twice_0").to_pylist() == [False, True, False]
