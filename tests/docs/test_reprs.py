"""What a REPL and a notebook show of relations, joins, statistics, explanations and reports."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import semistream
from semistream import Relation


@pytest.fixture
def products(tmp_path: Path) -> Relation:
    rows = pa.table({"id": range(1000), "name": [f"<b>{i}</b>" for i in range(1000)]})
    return Relation.build(rows, tmp_path / "products", key="id")


def test_a_relation_tells_its_size_key_and_version(products: Relation) -> None:
    assert repr(products).startswith(f"Relation({str(products.path)!r}: 1,000 rows, ")
    assert repr(products).endswith("key id, version 1)")
    assert "<tr><td>id</td><td>int64</td><td>key</td></tr>" in products._repr_html_()
    assert len(repr(products)) < 200


def test_a_join_tells_its_schema_and_budget_and_its_statistics(products: Relation) -> None:
    joined = semistream.join(pa.table({"id": [1, 2, 2000]}), products, on="id", how="left", memory="1MB")
    assert "left join" in repr(joined)
    assert "id: int64, name: string" in repr(joined)
    assert "1 MB" in repr(joined)
    joined.read_all()
    assert "3 rows in: 2 matched, 1 unmatched" in repr(joined.stats)
    assert "<td>rows_in</td><td>3</td>" in joined.stats._repr_html_()


def test_an_explanation_is_its_report(products: Relation) -> None:
    explanation = semistream.explain(products, rate=1000.0, memory="1MB")
    assert repr(explanation) == str(explanation)
    assert "1,000 tuples/s: sustained" in explanation._repr_html_()
    assert "chosen: " in explanation._repr_html_()
