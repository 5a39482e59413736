"""``semistream relation``: build, inspect, verify, update and vacuum a relation."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter, time
from typing import TYPE_CHECKING, Annotated

import typer

from semistream.cli.options import AsJson

if TYPE_CHECKING:
    import pyarrow as pa

    from semistream.relation import Relation

app = typer.Typer(help="Build, inspect, verify, update and vacuum relations on disk.", no_args_is_help=True)

RelationPath = Annotated[Path, typer.Argument(metavar="PATH", help="Relation folder.", show_default=False)]
Version = Annotated[
    int | None, typer.Option("--version", help="Version to open (default: the current one).", show_default=False)
]


@app.command()
def build(
    source: Annotated[
        Path,
        typer.Argument(metavar="SOURCE", help="Parquet, Arrow IPC or CSV file, or a folder of files in one format."),
    ],
    path: RelationPath,
    key: Annotated[list[str], typer.Option("--key", help="Key column to join on; repeat for a composite key.")],
    page_bytes: Annotated[
        int | None,
        typer.Option(
            help="Maximum bytes per page (default: 64 KiB, or 40 KiB per column group if more).", show_default=False
        ),
    ] = None,
    memory: Annotated[str, typer.Option(help="Memory for the sort.")] = "512MB",
    fill_factor: Annotated[
        float, typer.Option(help="Fraction of each page to fill; less than 1 leaves room for updates.")
    ] = 1.0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing relation.")] = False,
    column_group: Annotated[
        list[str] | None,
        typer.Option(
            "--column-group", metavar="A,B,...", help="Columns that joins read together; repeat for several groups."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Build a relation from files of any size, as pages clustered by key."""
    from semistream.cli.output import show
    from semistream.cli.progress import build_progress
    from semistream.cli.reports import Written
    from semistream.relation import Relation

    start = perf_counter()
    with build_progress() as progress:
        relation = Relation.build(
            source,
            path,
            key=key,
            page_bytes=page_bytes,
            memory=memory,
            fill_factor=fill_factor,
            overwrite=overwrite,
            column_groups=[names.split(",") for names in column_group or ()],
            progress=progress,
        )
    show(Written.of(relation, perf_counter() - start), as_json=as_json)


@app.command()
def info(path: RelationPath, version: Version = None, as_json: AsJson = False) -> None:
    """Show a relation's rows, pages, versions, key and columns."""
    from semistream.cli.output import show
    from semistream.cli.reports import RelationInfo
    from semistream.relation import Relation

    show(RelationInfo.of(Relation.open(path, version)), as_json=as_json)


@app.command()
def verify(path: RelationPath, version: Version = None, as_json: AsJson = False) -> None:
    """Read every byte and check checksums, order and counts. Names any damage and exits with code 1."""
    from semistream.cli.output import messages, show
    from semistream.cli.reports import VerifiedRelation
    from semistream.relation import Relation

    start = perf_counter()
    relation = Relation.open(path, version)
    with messages().status(f"verifying {path}"):
        found = relation.verify()
    report = VerifiedRelation(
        path=str(path),
        version=relation.version,
        files=found.files,
        pages=found.pages,
        rows=found.rows,
        bytes=found.bytes,
        seconds=round(perf_counter() - start, 3),
    )
    show(report, as_json=as_json)


@app.command()
def update(
    path: RelationPath,
    upserts: Annotated[
        Path | None, typer.Option(help="File or folder of new rows; they replace all rows with the same keys.")
    ] = None,
    deletes: Annotated[
        Path | None, typer.Option(help="File or folder with the keys to delete, in columns named as in the relation.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Publish a new version, rewriting only the pages that hold changed keys."""
    from semistream.cli.output import messages, show
    from semistream.cli.reports import Written
    from semistream.relation import Relation

    if upserts is None and deletes is None:
        raise typer.BadParameter("give --upserts, --deletes or both.")
    start = perf_counter()
    before = Relation.open(path)
    with messages().status(f"updating {path}"):
        after = before.update(upserts=upserts, deletes=None if deletes is None else _read_keys(before, deletes))
    show(Written.of(after, perf_counter() - start, before), as_json=as_json)


def _read_keys(relation: Relation, path: Path) -> pa.Table:
    """Read the key columns of a file and ignore its other columns."""
    from semistream.relation.write.build import key_names
    from semistream.relation.write.sources import open_source

    table = open_source(path).read_all()
    return table.select(key_names(relation.key, table.schema))


@app.command()
def vacuum(
    path: RelationPath,
    keep: Annotated[int, typer.Option(help="Number of latest versions to keep.", min=1)] = 1,
    as_json: AsJson = False,
) -> None:
    """Delete old versions, and files that no remaining version needs."""
    from semistream.cli.output import show
    from semistream.cli.reports import Vacuumed
    from semistream.relation import Relation
    from semistream.relation.format.pins import read_pins

    relation = Relation.open(path)
    removed = relation.vacuum(keep)
    needed: dict[int, list[str]] = {}
    for pin in read_pins(path, time()):
        needed.setdefault(pin.version, []).append(pin.owner)
    show(Vacuumed(str(path), relation.versions(), removed, needed), as_json=as_json)
