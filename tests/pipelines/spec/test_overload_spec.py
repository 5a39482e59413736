"""The setting `overload`: its values, and the settings it refuses, with the reason."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from semistream.errors import PipelineError
from semistream.pipelines.spec.yaml_file import make_spec
from tests.pipelines.specs import PIPELINE

OVERLOAD = {"latency": "30s", "archive": {"path": "archive"}}
JSON = {"format": "json", "path": "incoming", "schema": {"id": "bigint", "product": "bigint"}}


def overloaded(overload=None, **changes):
    return {**copy.deepcopy(PIPELINE), "overload": {**OVERLOAD, **(overload or {})}, **changes}


def test_defaults():
    spec = make_spec(overloaded())
    assert (spec.overload.goal_s, spec.overload.loss, spec.overload.repair) == (30.0, "max_subset", "manual")
    archive = spec.tables["shed"]
    assert (archive.format, archive.path) == ("delta", Path("archive"))
    assert "shed" not in make_spec(PIPELINE).tables


@pytest.mark.parametrize(
    ("overload", "changes", "said"),
    [
        ({"latncy": "3s"}, {}, r"overload\.latncy: .*Did you mean 'latency'\?"),
        ({"loss": "max_subsets"}, {}, r"overload\.loss: .*Did you mean 'max_subset'\?"),
        ({"strategy": "topw"}, {}, r"overload\.strategy: .*Did you mean 'top_w'\?"),
        ({"strategy": "cost_aware_top_w"}, {}, r"overload\.strategy: "),
        ({"archive": {"format": "kafka", "path": "x"}}, {}, r"overload\.archive\.format: "),
        ({"archive": {}}, {}, r"overload\.archive\.path: is missing"),
        ({"repair": "sometimes"}, {}, r"overload\.repair: "),
        ({"latency": "soon"}, {}, r"overload\.latency: 'soon' is not a duration"),
        ({"latency": "2s"}, {}, r"2s is not possible with a batch every 1s: .*Set at least 3s"),
        ({"weights": True}, {}, r"weights need loss: random_sample"),
        ({"weights": True, "strategy": "top_w"}, {}, r"top_w keeps no sample, so rows have no weights"),
        ({"relation": "prices"}, {}, r"relation is 'prices', but the joins are with 'products'"),
        ({"archive": {"path": "tables/sales"}}, {}, r"sink and the archive share a folder"),
        ({"archive": {"path": "incoming/old"}}, {}, r"the archive and the source share a folder"),
        ({}, {"latency": "10s"}, r"overload cannot be combined with latency"),
        ({}, {"route": "range", "source": JSON}, r"route: range only for Parquet, .* not for json: .*no fixed order"),
    ],
)
def test_what_is_wrong_is_said(overload, changes, said):
    with pytest.raises(PipelineError, match=said):
        make_spec(overloaded(overload, **changes))


@pytest.mark.parametrize(("every", "latency"), [("100ms", "300ms"), ("1s", "3s"), ("700ms", "2100ms")])
def test_the_least_possible_goal_is_accepted(every, latency):
    assert make_spec(overloaded({"latency": latency}, every=every)).overload.latency == latency


def test_workers_that_read_parquet_themselves_may_own_a_range_of_keys():
    assert make_spec(overloaded(route="range")).route == "range"


def test_batches_take_in_all_that_waits():
    content = overloaded()
    content["source"]["files_per_batch"] = 64
    with pytest.raises(PipelineError, match="cannot be combined with files_per_batch: rows that wait outside"):
        make_spec(content)
    kafka = {"format": "kafka", "servers": "s", "topic": "t", "schema": {"id": "bigint"}, "rows_per_batch": 5}
    with pytest.raises(PipelineError, match="cannot be combined with rows_per_batch"):
        make_spec(overloaded(source=kafka))


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ({"deduplicate": {"relation": "seen", "key": "id"}}, "which of two rows with the same key came first"),
        ({"changes": {"relation": "before", "key": "id"}}, "shed rows would look deleted"),
    ],
)
def test_steps_that_shedding_would_change_are_refused(step, said):
    with pytest.raises(PipelineError, match=said):
        make_spec(overloaded(steps=[step]))


def test_surrogate_keys_may_be_shed_but_have_no_matches():
    keyed = {"surrogate_key": {"relation": "keys", "key": "id", "into": "n"}}
    assert make_spec(overloaded(steps=[keyed])).overload is not None
    with pytest.raises(PipelineError, match="top_w needs a join to count matches; use keep_w or sample_w"):
        make_spec(overloaded({"strategy": "top_w"}, steps=[keyed]))
