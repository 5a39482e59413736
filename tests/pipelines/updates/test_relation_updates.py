"""Updates of a relation from files: each applied once, in order, and a limited number at a time."""

import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.errors import PipelineError
from semistream.pipelines.ledger import faults
from semistream.pipelines.ledger.ledger import Ledger
from semistream.pipelines.spec.step_spec import UpdatesSpec
from semistream.pipelines.updates import folder_updates
from semistream.pipelines.updates.parquet_updates import read_parquet_updates
from semistream.pipelines.updates.relation_updates import RelationUpdates
from semistream.pipelines.updates.update_reader import UpdateReader
from semistream.relation import Relation

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])


class Killed(BaseException):
    """A process dies."""


@dataclass
class FileReader(UpdateReader):
    """Reader of Parquet files, which tells how many it reads at once."""

    meanwhile: Callable[[], None] = lambda: None
    read: list[int] = field(default_factory=list)

    def read_files(self, spec, columns, files):  # noqa: ARG002
        self.meanwhile()
        self.read.append(len(files))
        return read_parquet_updates(files, columns)

    def ranges(self, spec):
        raise AssertionError(f"{spec} has no topic")

    read_messages = parse_messages = ranges


class World:
    """A relation, the folder of its updates, and what the relation must hold."""

    def __init__(self, folder, schema=SCHEMA):
        self.folder, self.path = folder / "updates", folder / "r"
        self.checkpoint = folder / "checkpoint"
        self.folder.mkdir(parents=True)
        Relation.build(schema.empty_table(), self.path, key="k", page_bytes=2048)
        self.expected, self.files = {}, 0

    def put(self, *rows, name=None):
        """One more file of updates."""
        self.files += 1
        path = self.folder / (name or f"{self.files % 7}-{self.files:04d}.parquet")
        table = pa.table({"k": [k for k, _ in rows], "v": [v for _, v in rows]}, schema=SCHEMA)
        pq.write_table(table, path)
        os.utime(path, ns=(self.files * 10**6, self.files * 10**6))
        self.expected |= dict(rows)
        return path

    def apply(self, reader=None, **options):
        """A process opens the ledger, and applies updates."""
        spec = UpdatesSpec(format="parquet", path=self.folder)
        with Ledger.open(self.checkpoint, "p") as ledger:
            updates = RelationUpdates(spec, self.path, 0, ledger, ledger.writer, **options)
            return updates.apply(reader or FileReader())

    @property
    def rows(self):
        return {row["k"]: row["v"] for row in Relation.open(self.path).scan().read_all().to_pylist()}

    @property
    def rejected(self):
        files = sorted((self.checkpoint / "updates").glob("*.rejected.parquet"))
        return [row for file in files for row in pq.read_table(file).to_pylist()]


def test_updates_that_come_as_fast_as_they_are_read_let_the_batch_go_on(tmp_path):
    world = World(tmp_path)
    world.put((0, "first"))
    reader = FileReader(meanwhile=lambda: world.put((world.files, "more")))
    for _ in range(3):
        world.apply(reader)
        assert len(world.rows) == len(world.expected) - 1
    assert reader.read == [1, 1, 1]
    world.apply()
    assert world.rows == world.expected


def test_a_backlog_is_read_many_files_at_a_time_and_for_a_limited_time(tmp_path, monkeypatch):
    monkeypatch.setattr(folder_updates, "_MOST_FILES", 10)
    world, seconds = World(tmp_path), [0.0]
    for number in range(45):
        world.put((number % 4, f"{number}"))

    def clock():
        seconds[0] += 2.0
        return seconds[0]

    reader = FileReader()
    world.apply(reader, clock=clock)
    assert reader.read == [10, 10, 10]
    world.apply(reader, clock=lambda: 0.0)
    assert reader.read == [10, 10, 10, 10, 5]
    assert world.rows == world.expected
    assert not world.apply(reader)


def test_an_update_holds_a_limited_number_of_bytes(tmp_path, monkeypatch):
    world = World(tmp_path)
    sizes = [world.put((number, "x" * 10_000 * number)).stat().st_size for number in range(6)]
    monkeypatch.setattr(folder_updates, "_MOST_BYTES", sizes[0] + sizes[1] + sizes[2])
    reader = FileReader()
    world.apply(reader)
    assert sum(reader.read) == 6
    assert reader.read[0] == 3
    assert world.rows == world.expected


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.lists(st.tuples(st.integers(0, 5), st.text("ab", max_size=2)), max_size=3)),
        st.just(("apply", None)),
        st.tuples(
            st.just("kill"),
            st.sampled_from([f"{when} update{what}" for when in ("before", "after") for what in ("", " plan")]),
        ),
        st.just(("remove", None)),
    ),
    max_size=40,
)


@settings(deadline=None, max_examples=25)
@given(events=EVENTS)
def test_each_file_is_applied_once_whatever_is_killed_or_removed(tmp_path_factory, events):
    world, applied = World(tmp_path_factory.mktemp("world")), set()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(folder_updates, "_MOST_FILES", 2)
        patch.setattr(folder_updates, "_RECENT", 3)
        for kind, what in [*events, ("apply", None)]:
            if kind == "put":
                world.put(*dict(what).items())
            elif kind == "remove":  # by their owner, once they are applied
                for name in sorted(applied)[::2]:
                    (world.folder / name).unlink(missing_ok=True)
            elif kind == "kill":
                patch.setattr(faults, "handler", lambda point, at=what: _die(point, at))
                with suppress(Killed):
                    world.apply()
                patch.setattr(faults, "handler", faults.kill_if_named)
            else:
                there = {path.name for path in world.folder.iterdir()}
                version, new = Relation.open(world.path).version, there - applied
                world.apply()
                assert world.rows == world.expected
                assert Relation.open(world.path).version <= version + len(new)
                applied |= there
                assert not world.apply()
                entry = json.loads((world.checkpoint / "updates" / "0-r.json").read_text()) if applied else None
                assert entry is None or len(entry["content"]["seen"]) <= 3 + 2


def _die(point, at):
    if point == at:
        raise Killed


def test_names_that_left_the_entry_are_still_known(tmp_path, monkeypatch):
    monkeypatch.setattr(folder_updates, "_RECENT", 3)
    world, reader = World(tmp_path), FileReader()
    for number in range(12):
        world.put((number % 2, f"{number}"))
        world.apply(reader)
    assert reader.read == [1] * 12
    assert world.rows == world.expected


def test_names_of_files_that_are_gone_are_forgotten(tmp_path, monkeypatch):
    monkeypatch.setattr(folder_updates, "_RECENT", 5)
    world = World(tmp_path)
    for _ in range(60):
        path = world.put((1, "x"))
        world.apply()
        path.unlink()
    names = json.loads((world.checkpoint / "updates" / "0-r.seen.json").read_text())
    assert len(names) <= 5


def test_a_lost_list_of_names_is_not_taken_for_an_empty_one(tmp_path, monkeypatch):
    monkeypatch.setattr(folder_updates, "_RECENT", 1)
    world = World(tmp_path)
    for number in range(3):
        world.put((number, "x"))
        world.apply()
    (world.checkpoint / "updates" / "0-r.seen.json").unlink()
    with pytest.raises(PipelineError, match=r"0-r\.seen\.json, the names of the update files .* cannot be read"):
        world.apply()


def test_names_in_the_entry_of_an_older_release_are_known(tmp_path):
    world = World(tmp_path)
    for number in range(5):
        world.put((number, "x"))
    names = sorted(path.name for path in world.folder.iterdir())
    with Ledger.open(world.checkpoint, "p") as ledger:
        ledger.write_update("0-r", 1, {"files": names, "seen": names})
    reader = FileReader()
    world.apply(reader)
    world.put((9, "new"))
    world.apply(reader)
    assert reader.read == [5, 1]
    assert world.rows == world.expected


def test_rows_that_cannot_enter_the_relation_are_rejected_alone(tmp_path):
    schema = pa.schema(
        [pa.field("k", pa.int64()), pa.field("v", pa.string(), nullable=False), ("at", pa.timestamp("us"))]
    )
    world = World(tmp_path, schema)
    texts = pa.array([b"a", b"\xff", None, b"x" * 100_000, b"e", b"f", b"g"])
    values = pa.Array.from_buffers(pa.string(), 7, texts.buffers())
    times = pa.array([0, 0, 0, 0, 2**62, 0, 5], pa.timestamp("ms"))
    pq.write_table(pa.table({"k": [1, 2, 3, 4, 5, None, 7], "v": values, "at": times}), world.folder / "0.parquet")
    world.apply(most_row_bytes=50_000)
    assert world.rows == {1: "a", 7: "g"}
    told = [(row["raw"][:9], row["reason"]) for row in world.rejected]
    unreadable = "the row cannot be read with the source's columns and types"
    assert told == [
        ('{"k": 2, ', unreadable),
        ('{"k": 3, ', "v is null"),
        ('{"k": 4, ', "the row takes more than 50,000 bytes; raise `memory` to load such rows"),
        ('{"k": 5, ', unreadable),
        ('{"k": nul', "a row without its key (k)"),
    ]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"PAR1 not one", "cannot be used: the file cannot be read"),
        (pa.table({"k": [1]}), "cannot be used: the file has no column 'v'"),
        (pa.table({"k": ["1"], "v": ["x"]}), "cannot be used: the file's column 'k' is string"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_and_read_once_it_is_whole(tmp_path, content, said):
    world = World(tmp_path)
    path = world.put((1, "x"))
    whole = path.read_bytes()
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        pq.write_table(content, path)
    with pytest.raises(PipelineError, match=said) as refused:
        world.apply()
    assert str(path) in str(refused.value)
    path.write_bytes(whole)
    world.apply()
    assert world.rows == world.expected
