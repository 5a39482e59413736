"""What a pipeline does when more rows come than it can join in time: shed, archive, and repair later."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import field_validator, model_validator

from semistream.pipelines.spec.durations import parse_duration
from semistream.pipelines.spec.part import SpecPart, as_value_error

StrategyName = Literal["keep_w", "sample_w", "top_w", "cluster_sampling"]
"""Strategies for pipelines. Not ``cost_aware_top_w``: what is cheap to join depends on what the caches of the workers
hold, which a replay would find otherwise."""

_SAMPLES = ("sample_w", "cluster_sampling")


class ArchiveSpec(SpecPart):
    """The table that rows which were shed wait in until they are repaired."""

    format: Literal["delta", "parquet"] = "delta"
    path: Path


class OverloadSpec(SpecPart):
    """Rows are to be in their tables within ``latency`` after they came; where that cannot be, some are shed.

    ``loss`` says which: ``max_subset`` loses the fewest results, ``random_sample`` keeps a sample of which estimates
    can be made; with MESH Table 2 that gives the strategy, unless a ``strategy`` is named. Rows are valued by their
    matches in the ``relation`` of that name, by default that of the first join. With ``weights``, joined rows of a
    sample carry the columns that `semistream.shedding.estimate` reads. Rows that were shed wait in the ``archive``,
    until ``semistream reconcile`` joins them, or the pipeline itself when it is idle (``repair``).
    """

    latency: str
    loss: Literal["max_subset", "random_sample"] = "max_subset"
    strategy: StrategyName | None = None
    relation: str | None = None
    weights: bool = False
    archive: ArchiveSpec
    repair: Literal["manual", "idle"] = "manual"

    @field_validator("latency")
    @classmethod
    def _a_duration(cls, latency: str) -> str:
        as_value_error(parse_duration, latency)
        return latency

    @model_validator(mode="after")
    def _weights_of_samples(self) -> OverloadSpec:
        if self.weights and self.strategy not in (None, *_SAMPLES):
            raise ValueError(
                f"{self.strategy} keeps no sample, so rows have no weights; shed by {' or '.join(_SAMPLES)}, or leave "
                "weights out"
            )
        if self.weights and self.strategy is None and self.loss != "random_sample":
            raise ValueError("weights are for loss: random_sample; max_subset keeps no sample")
        return self

    @property
    def goal_s(self) -> float:
        """The goal, in seconds."""
        return parse_duration(self.latency)
