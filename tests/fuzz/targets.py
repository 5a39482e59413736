"""Targets: for each kind of input, a function that reads hostile bytes in every way that semistream would.

A target may raise `SemistreamError`, and nothing else.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from semistream.errors import SemistreamError
from semistream.relation import Relation
from semistream.relation.format.manifest import CURRENT, manifest_name
from semistream.relation.format.page_table import PageTable

Run = Callable[[bytes], None]


def _text(content: bytes) -> str:
    return content.decode("utf-8", "replace")


def _yaml(folder: Path) -> Run:
    from semistream.pipelines.spec.yaml_file import read_spec

    file = folder / "pipeline.yaml"

    def run(content: bytes) -> None:
        file.write_bytes(content)
        repr(read_spec(file, {"SECRET": "correct horse", "DAY": "1 day", "N": "7"}))

    return run


ROWS = 40


def _rows() -> pa.Table:
    return pa.table(
        {
            "k": pa.array(range(ROWS)),
            "text": [None if i % 7 == 0 else "x" * (i % 23) for i in range(ROWS)],
            "day": pa.array([i if i % 6 else None for i in range(ROWS)], pa.date32()),
            "at": pa.array([i * 10**6 for i in range(ROWS)], pa.timestamp("us", "UTC")),
            "price": pa.array([i if i % 5 else None for i in range(ROWS)], pa.decimal128(10, 2)),
            "ok": [i % 3 == 0 for i in range(ROWS)],
            "weight": [i / 7 for i in range(ROWS)],
        }
    )


def _where(folder: Path) -> Run:
    from semistream.joins.condition.spec import JoinSpec
    from semistream.joins.condition.where import read_terms

    relation = Relation.build(_rows(), folder / "r", key="k")
    schema = relation.schema.append(pa.field("unit price", pa.float32()))

    def run(content: bytes) -> None:
        terms = list(map(str, read_terms(_text(content))))
        if all(len(term) < 90 for term in terms):  # a distance of hundreds of digits is too long to be read again
            assert list(map(str, read_terms(" AND ".join(terms)))) == terms
        JoinSpec.of(relation, schema, where=_text(content))

    return run


def _manifests(folder: Path) -> Run:
    path = folder / "r"
    # files of the corpus are named by a token that builds draw at random
    token = Path(Relation.build(_rows(), path, key="k").manifest.page_table.name).name[7:15].encode()
    current = (path / CURRENT).read_bytes()

    def run(content: bytes) -> None:
        how, content = content[:1], content[1:].replace(b"aaaaaaaa", token)
        if how == b"c":
            (path / CURRENT).write_bytes(content)
        else:
            if how != b"w":  # not the whole file: its body, with the checksum that fits
                body = _text(content)
                record = {
                    "format": 2 if how == b"2" else 1,
                    "checksum": xxhash.xxh64_hexdigest(body.encode()),
                    "manifest": body,
                }
                content = json.dumps(record).encode()
            (path / manifest_name(1)).write_bytes(content)
            set_current_once(path)
        Relation.open(path).scan().read_all()

    current = (path / CURRENT).read_bytes()

    def set_current_once(path: Path) -> None:
        if (path / CURRENT).read_bytes() != current:
            (path / CURRENT).write_bytes(current)

    return run


def _page_tables(folder: Path) -> Run:
    relation = Relation.build(_rows(), folder / "r", key="k", page_bytes=1024)
    file, sizes = folder / "table.arrow", [[each.nbytes for each in relation.manifest.files]]
    base = relation.table.to_arrow()
    widths = [field.type.bit_width // 8 for field in base.schema]

    def forged(content: bytes) -> pa.Table:
        """The table with values of some columns taken from the content."""
        columns = [column.to_numpy().copy() for column in base.columns]
        for at in range(0, len(content) - 2, 10):
            column, row = columns[content[at] % len(columns)], content[at + 1] % len(base)
            value = content[at + 2 : at + 2 + widths[content[at] % len(columns)]]
            if len(value) == column.itemsize:
                column[row] = np.frombuffer(value, column.dtype)[0]
        return pa.table(columns, schema=base.schema)

    def run(content: bytes) -> None:
        if content[:1] == b"v":
            with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, base.schema) as writer:
                writer.write_table(forged(content[1:]))
        else:
            file.write_bytes(content)
        table = PageTable.read(file, [0], sizes)
        if len(table) < 1000:
            relation.__dict__["table"] = table
            relation.scan(disk="buffered").read_all()
            relation.lookup([1, 7])

    return run


def _pages(folder: Path) -> Run:
    """Pages with the checksum that fits: flat ones by an even first byte, else also of lists and structs."""
    nested = {"tags": [["a"] * (i % 4) for i in range(ROWS)], "of": [{"x": i, "y": [str(i)]} for i in range(ROWS)]}
    tables = [_rows(), _rows().append_column("tags", [nested["tags"]]).append_column("of", [nested["of"]])]
    relations = [Relation.build(table, folder / f"r{i}", key="k", page_bytes=2048) for i, table in enumerate(tables)]
    files = [os.open(each.path / each.manifest.files[0].name, os.O_RDWR) for each in relations]
    whole = [
        [_page(file, relation.table, page) for page in range(len(relation.table))]
        for file, relation in zip(files, relations, strict=True)
    ]
    numbers = count()

    def run(content: bytes) -> None:
        if len(content) < 2:
            return
        which, page = content[0] % 2, content[1] % len(whole[content[0] % 2])
        relation, (segment,) = relations[which], relations[which].table.segments
        begin, old = int(segment.offset[page]), whole[which][page]
        new = content[2 : 2 + len(old)]
        new += old[len(new) :]
        os.pwrite(files[which], new, begin)
        kept = segment.checksum[page]
        segment.checksum[page] = xxhash.xxh64_intdigest(new)
        segment.verified[:] = False
        try:
            relation.scan(disk="buffered").read_all().validate()
            relation.lookup([1, 7, 39]).validate()
            if next(numbers) % 50 == 0:
                _joined(relation)
        finally:
            os.pwrite(files[which], old, begin)
            segment.checksum[page] = kept

    return run


def _page(file: int, table: PageTable, page: int) -> bytes:
    (segment,) = table.segments
    return os.pread(file, int(segment.nbytes[page]), int(segment.offset[page]))


def _joined(relation: Relation) -> None:
    import semistream

    stream = pa.table({"s": range(-5, ROWS + 5)})
    for operator in ("engine", "index", "mesh"):
        found = semistream.join(stream, relation, on={"s": "k"}, operator=operator, memory="4MB", disk="buffered")
        found.read_all().validate()


def _ledger(folder: Path) -> Run:
    from semistream.pipelines.ledger.ledger import Ledger
    from semistream.pipelines.status import METRICS, pipeline_state
    from semistream.pipelines.task.worker_task import read_work
    from semistream.shedding import read_decision

    with Ledger.open(folder / "c", "p") as ledger:
        identity = (folder / "c" / "pipeline.json").read_bytes()
    (folder / "c" / "archived").mkdir()
    ledger = Ledger.read(folder / "c", "p")
    batches, latest = folder / "c" / "batches" / "000000000000", lambda: Ledger.read(folder / "c", "p")
    work = lambda: read_work(batches.with_suffix(".staged-0.json").read_bytes())  # noqa: E731
    files: dict[bytes, tuple[Path, list[Callable[[], Any]]]] = {
        b"i": (folder / "c" / "pipeline.json", [latest]),
        b"u": (folder / "c" / "updates" / "r.json", [lambda: ledger.update("r")]),
        b"a": (folder / "c" / "archived" / "000000000000.json", [lambda: ledger.archived]),
        b"m": (folder / "c" / METRICS, []),
        b"p": (batches.with_suffix(".planned.json"), [lambda: ledger.plan(0), lambda: ledger.plan_of(0)]),
        b"s": (batches.with_suffix(".shed.json"), [lambda: ledger.shed(0)]),
        b"w": (batches.with_suffix(".staged-0.json"), [lambda: ledger.staged(0), work]),
        b"r": (batches.with_suffix(".prepared.json"), [lambda: ledger.prepared(0), lambda: latest().waiting]),
        b"o": (batches.with_suffix(".done.json"), [lambda: ledger.learnt]),
    }

    def run(content: bytes) -> None:
        kind, content = content[:1], content[1:]
        if kind not in files:
            read_decision(_text(content))
            return
        file, reads = files[kind]
        file.write_bytes(content)
        try:
            _each([*reads, lambda: pipeline_state(folder / "c", "p")])
        finally:
            file.unlink()
            if kind == b"i":
                file.write_bytes(identity)

    return run


def _each(calls: list[Callable[[], Any]]) -> None:
    """Make all calls, also after one was refused."""
    refusal = None
    for call in calls:
        try:
            call()
        except SemistreamError as error:
            refusal = error
    if refusal is not None:
        raise refusal


def _parquet(folder: Path) -> Run:
    from semistream.pipelines.inputs.parquet_files import parquet_inputs
    from semistream.pipelines.spec.row_rules import RowRule
    from semistream.pipelines.steps.chain import Chain
    from semistream.pipelines.task.batch_task import BatchTask
    from tests.pipelines.steps.chain_model import SOURCE, Step, build_relations
    from tests.pipelines.test_batch_task import task_plan

    relations = build_relations(folder / "relations")
    file, numbers = folder / "rows.parquet", count()
    rules = (RowRule("a", not_null=True, least=0, most=100),)

    def run(content: bytes) -> None:
        number = next(numbers)
        out = folder / f"out-{number}"
        file.write_bytes(content)
        inputs = parquet_inputs([str(file)], SOURCE, 1, stop=False)
        if inputs.splits[:1] and inputs.splits[0].reason and number % 50:
            return  # goes to the quarantine as a whole
        plan, chain = task_plan(out, [Step(1, "a", "inner", "keep")], relations, rules=rules)
        assert isinstance(chain, Chain)
        task = BatchTask(plan, chain)
        try:
            list(task.run(inputs.splits))
            work = task.work()
            assert sum(work.outcomes.values()) == work.rows_in
        finally:
            task.abandon()
            shutil.rmtree(out, ignore_errors=True)

    return run


def _sources(folder: Path) -> Run:
    """Files that relations are built from; the first byte chooses CSV, Parquet or Arrow."""
    files = {b"c": folder / "rows.csv", b"p": folder / "rows.parquet", b"a": folder / "rows.arrow"}
    from semistream.relation.write.sources import open_source

    def run(content: bytes) -> None:
        file = files.get(content[:1], folder / "rows.csv")
        file.write_bytes(content[1:])
        for batch in open_source(file):
            assert batch.num_rows >= 0

    return run


def _whole_files(folder: Path) -> Run:
    """Arrow files of a relation besides its pages: rows with a null key, and the codes that an update touched."""
    from semistream.relation.changes import read_changes
    from semistream.relation.format.arrow_files import sound_batches
    from semistream.relation.format.manifest import WholeFile

    name, schema = "rows.arrow", _rows().schema

    def run(content: bytes) -> None:
        (folder / name).write_bytes(content)
        _each(
            [
                lambda: [batch.to_pylist() for batch in sound_batches(folder / name, schema)],
                lambda: read_changes(folder, WholeFile(name, len(content), xxhash.xxh64_intdigest(content))),
            ]
        )

    return run


def _heads(folder: Path) -> Run:
    """First lines of JSON and CSV files, as a pipeline's source looks at them before Spark does."""
    from semistream.spark.sources.files import _csv_header, _json_fields, local_path

    file = folder / "rows"

    def run(content: bytes) -> None:
        file.write_bytes(content)
        _json_fields(str(file))
        _csv_header(str(file), {})
        local_path(_text(content))

    return run


COMMANDS = ("join", "window", "validate", "status", "explain", "relation", "vacuum", "reconcile", "")


def _cli(folder: Path) -> Run:
    """Command lines, a word a line. Words lose their slashes: nothing outside of the folder is read or written."""
    import pyarrow.csv
    from typer.testing import CliRunner

    from semistream.cli.main import app

    os.chdir(folder)
    runner = CliRunner()

    def fresh() -> None:
        for each in folder.iterdir():
            shutil.rmtree(each) if each.is_dir() else each.unlink()
        Relation.build(_rows(), "r", key="k")
        pq.write_table(_rows().rename_columns(["id", *_rows().column_names[1:]]), "s.parquet")
        pyarrow.csv.write_csv(_rows().select(["k", "text"]), "s.csv")
        Path("p.yaml").write_text("name: p\n")

    def run(content: bytes) -> None:
        words = [word.replace("/", "").replace("\0", "") for word in _text(content).split("\n")][:12]
        if words[0] not in COMMANDS or (words[0] == "reconcile" and "--master" in words):
            return
        result = runner.invoke(app, words, prog_name="semistream", input=b"")
        if next(numbers) % 50 == 0:
            fresh()
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception

    numbers = count(1)
    fresh()
    return run


TARGETS: dict[str, Callable[[Path], Run]] = {
    "pages": _pages, "manifests": _manifests, "page_tables": _page_tables, "ledger": _ledger, "yaml": _yaml,
    "where": _where, "parquet": _parquet, "sources": _sources, "heads": _heads, "cli": _cli,
    "whole_files": _whole_files,
}  # fmt: skip
"""By kind of input: a function that prepares a folder and returns the function to run."""


CORPUS = Path(__file__).with_name("corpus")


def corpus(kind: str) -> Iterator[tuple[str, bytes]]:
    """Name and content of each input of a kind that is kept."""
    for file in sorted((CORPUS / kind).iterdir()):
        yield file.name, file.read_bytes()
