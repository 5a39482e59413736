"""Versions of an unfinished batch: a vacuum keeps them, and the batch gets over their loss if it can."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from semistream.errors import PipelineError
from semistream.pipelines.ledger import faults
from semistream.relation import Relation
from semistream.relation.format.pins import HELD_S, read_pins
from tests.faults.overload_scenario import OverloadScenario
from tests.simulation.local_driver import drive
from tests.simulation.local_workers import forget_workers
from tests.simulation.world import World
from tests.spark.pipelines.overloads import ROW_S, believe_slow
from tests.spark.pipelines.warehouse import Warehouse, orders, products

ORDERS = 200
STAGES = ["after planned", "before staged-0", "after staged-0", "before keys", "after keys", "after prepared"]
RELATIONS = ["products", "keys", "seen"]


class Shop:
    """A pipeline that numbers customers, drops double orders, and joins the rest with products."""

    def __init__(self, folder: Path) -> None:
        self.world = World(folder, 0)
        self.folder = self.world.folder / "shop"
        self.warehouse = Warehouse(self.folder)
        self.stream = orders(ORDERS)
        self.warehouse.put(pa.concat_tables([self.stream, self.stream.slice(0, 20)]), "0.parquet")

    @property
    def spec(self) -> dict[str, Any]:
        steps = [
            {"surrogate_key": {"relation": str(self.folder / "keys"), "key": "customer", "into": "number"}},
            {"deduplicate": {"relation": str(self.folder / "seen"), "key": "id"}},
            {"join": {"relation": str(self.folder / "products"), "on": {"product": "id"}, "unmatched": "null"}},
        ]
        return self.warehouse.spec(*steps, format="parquet")

    def run(self) -> None:
        drive(self.world, self.spec)

    def run_until(self, point: str) -> None:
        """A process that is killed at a point of the protocol."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(faults, "handler", lambda reached: self.world.die() if reached == point else None)
            assert not self.world.run("driver", None, self.run), f"{point} was never reached"
        forget_workers()

    def change(self, name: str) -> None:
        """Others bring new versions, and remove all old ones."""
        relation = Relation.open(self.folder / name)
        for _ in range(3):
            if name == "products":
                table = products().set_column(2, "price", pa.array([-1.0] * products().num_rows))
                relation = relation.update(table)
            else:
                relation = relation.update(deletes=["nobody"] if name == "keys" else [-1])
        relation.vacuum(1)

    def forget_pins(self) -> None:
        for name in RELATIONS:
            shutil.rmtree(self.folder / name / "pins")

    def check(self, price: Callable[[int], float]) -> None:
        """Each order is in the sink once, joined with one version of the products; numbers have no gaps."""
        priced = set(products().column("id").to_pylist())
        found = self.warehouse.table("sink").to_pylist()
        expected = {
            row["id"]: price(row["product"]) if row["product"] in priced else None for row in self.stream.to_pylist()
        }
        assert len(found) == len(expected)
        assert {row["id"]: row["price"] for row in found} == expected
        numbers = {row["customer"]: row["number"] for row in found}
        assert sorted(set(numbers.values())) == list(range(1, len(numbers) + 1))
        assert all(row["number"] == numbers[row["customer"]] for row in found)


def old_price(product: int) -> float:
    return product / 4


def new_price(product: int) -> float:
    return -1.0


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


@pytest.mark.parametrize("stage", STAGES)
def test_a_vacuum_keeps_the_versions_of_an_unfinished_batch(shop: Shop, stage: str) -> None:
    shop.run_until(stage)
    planned = {name: Relation.open(shop.folder / name).version for name in RELATIONS}
    for name in RELATIONS:
        shop.change(name)
    assert Relation.open(shop.folder / "products").versions() == [planned["products"], planned["products"] + 3]
    shop.run()
    shop.check(old_price)
    for name in RELATIONS:
        assert not read_pins(shop.folder / name, time.time())
        assert len(Relation.open(shop.folder / name).versions()) > 1
        Relation.open(shop.folder / name).vacuum(1)
        assert len(Relation.open(shop.folder / name).versions()) == 1


@pytest.mark.parametrize("name", RELATIONS)
@pytest.mark.parametrize("stage", STAGES)
def test_a_batch_gets_over_lost_versions_unless_rows_were_joined_with_them(shop: Shop, stage: str, name: str) -> None:
    shop.run_until(stage)
    shop.forget_pins()
    shop.change(name)
    begun = stage in ("after staged-0", "before keys", "after keys")
    if name == "products" and begun:
        with pytest.raises(PipelineError, match=r"rows of batch 0 were joined with version 1 of .*products.* has 4\."):
            shop.run()
        return
    shop.run()
    shop.check(new_price if name == "products" and stage != "after prepared" else old_price)


def test_a_second_kill_changes_nothing(shop: Shop) -> None:
    shop.run_until("after planned")
    shop.forget_pins()
    shop.change("products")
    shop.run_until("after staged-0")
    shop.change("products")
    shop.run()
    shop.check(new_price)


def test_pins_of_a_pipeline_that_never_comes_back_hold_for_a_week(shop: Shop) -> None:
    shop.run_until("after planned")
    shop.change("products")
    relation = Relation.open(shop.folder / "products")
    (pin,) = (relation.path / "pins").iterdir()
    left = pin.with_name(".left.json.0.tmp")
    left.write_text("")
    (read,) = read_pins(relation.path, time.time())
    assert read.owner == f"the pipeline 'orders' with the checkpoint {shop.folder / 'checkpoint'}"
    assert relation.vacuum(1) == []
    for path in (pin, left):
        os.utime(path, (time.time() - HELD_S - 1, time.time() - HELD_S - 1))
    assert {f"pins/{pin.name}", f"pins/{left.name}", "versions/000001.json"} <= set(relation.vacuum(1))
    assert relation.versions() == [4]


def test_what_is_no_pin_holds_nothing(shop: Shop) -> None:
    shop.run_until("after planned")
    (pin,) = (shop.folder / "products" / "pins").iterdir()
    for content in ("", "[]", '{"version": "x"}', '{"version": 99, "owner": "a"}'):
        pin.write_text(content)
        shop.change("products")
        assert len(Relation.open(shop.folder / "products").versions()) == 1


def test_a_relation_that_may_only_be_read_is_joined_without_pins(shop: Shop) -> None:
    (shop.folder / "products" / "pins").write_text("no folder")  # as root writes to any
    shop.run()
    shop.check(old_price)


@pytest.mark.parametrize("strategy", ["keep_w", "top_w"])
def test_a_batch_that_sheds_gets_over_a_lost_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strategy: str
) -> None:
    believe_slow(ROW_S, monkeypatch.setattr)
    world = World(tmp_path, 0)
    shop = OverloadScenario(world.folder / "shop")
    spec = {**shop.spec(), "overload": {**shop.spec()["overload"], "strategy": strategy}}
    shop.grow()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(faults, "handler", lambda reached: world.die() if reached == "after shed" else None)
        assert not world.run("driver", None, lambda: drive(world, spec))
    forget_workers()
    shutil.rmtree(shop.folder / "products" / "pins")
    Relation.open(shop.folder / "products").update(products()).vacuum(1)
    drive(world, spec)
    shop.look()
    assert list((shop.folder / "checkpoint" / "archived").iterdir())
    drive(world, spec, only_repair=True)
    shop.check()
