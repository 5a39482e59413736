"""Overload settings: how a pipeline sheds, archives and repairs rows when more arrive than it can join in time."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from semistream.pipelines.spec.durations import Duration, parse_duration
from semistream.pipelines.spec.part import LocalPath, SpecPart

StrategyName = Literal["keep_w", "sample_w", "top_w", "cluster_sampling"]
"""Shedding strategies for pipelines. None weighs the cost of a row: it depends on the contents of the workers' caches,
which a replay finds in another state."""

_SAMPLES = ("sample_w", "cluster_sampling")


class ArchiveSpec(SpecPart):
    """Table that holds shed rows until they are repaired."""

    format: Literal["delta", "parquet"] = "delta"
    path: LocalPath


class OverloadSpec(SpecPart):
    """Latency goal of a pipeline, and how it sheds rows to keep the goal.

    Rows should reach their tables within ``latency`` of their arrival. Batches with too many rows shed some. ``loss``
    says which: ``max_subset`` loses the fewest results, ``random_sample`` keeps a sample that supports estimates. The
    strategy follows from it by MESH Table 2, unless ``strategy`` names one. A row's value is its number of matches in
    the ``relation`` of that name, by default that of the first join. With ``weights``, joined rows of a sample carry
    the columns that `semistream.shedding.estimate` reads. Shed rows wait in the ``archive`` until ``semistream
    reconcile`` joins them (``repair: manual``), or the pipeline does so when idle (``repair: idle``).
    """

    latency: Duration
    loss: Literal["max_subset", "random_sample"] = "max_subset"
    strategy: StrategyName | None = None
    relation: str | None = None
    weights: bool = False
    archive: ArchiveSpec
    repair: Literal["manual", "idle"] = "manual"

    @model_validator(mode="after")
    def _weights_of_samples(self) -> OverloadSpec:
        if self.weights and self.strategy not in (None, *_SAMPLES):
            raise ValueError(
                f"{self.strategy} keeps no sample, so rows have no weights; use the strategy {' or '.join(_SAMPLES)}, "
                "or leave weights out"
            )
        if self.weights and self.strategy is None and self.loss != "random_sample":
            raise ValueError("weights need loss: random_sample; max_subset keeps no sample")
        return self

    @property
    def goal_s(self) -> float:
        """Latency goal in seconds."""
        return parse_duration(self.latency)
