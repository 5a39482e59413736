"""Relations and results in words and tables, for a REPL and for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from semistream.budget import format_bytes

if TYPE_CHECKING:
    from semistream.relation.relation import Relation


def html_table(title: str, headers: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table for a notebook.

    >>> html_table("a < b", ["x"], [[1]])
    '<b>a &lt; b</b><table><tr><th>x</th></tr><tr><td>1</td></tr></table>'
    """
    head = "".join(f"<th>{escape(header)}</th>" for header in headers)
    body = "".join("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<b>{escape(title)}</b><table><tr>{head}</tr>{body}</table>"


def describe_relation(relation: Relation) -> str:
    """Return a relation in a line: where it is, how large, its key and its version."""
    size = f"{relation.num_rows:,} rows, {format_bytes(relation.nbytes)} in {relation.num_pages:,} pages"
    key = ", ".join(relation.key)
    return f"Relation({str(relation.path)!r}: {size}, key {key}, version {relation.version})"


def tabulate_relation(relation: Relation) -> str:
    """Return a relation for a notebook: its line, and its columns."""
    rows = [(field.name, field.type, "key" if field.name in relation.key else "") for field in relation.schema]
    return html_table(describe_relation(relation), ["column", "type", ""], rows)
