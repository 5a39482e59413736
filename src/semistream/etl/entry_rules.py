"""What rows of a pipeline's source are held against before they are joined."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from semistream.etl.row_rules import RowRule, readable_time
from semistream.etl.spec import PipelineSpec
from semistream.etl.tables import Table


def entry_rules(spec: PipelineSpec, source: pa.Schema, tables: Iterable[Table]) -> tuple[RowRule, ...]:
    """The source's rules, that keys which are looked up are there, and that dates which name a folder of one of the
    ``tables`` are such that others can read them.
    """
    keyed = [name for step in spec.steps if step.keyed is not None for name in step.keyed.key]
    parted = {name for table in tables for name in table.partition_by if name in source.names}
    rules = [each.rule for each in spec.source.rules]
    rules += [RowRule(name, not_null=True) for name in keyed if name in source.names]
    dated = (readable_time(name, source.field(name).type) for name in sorted(parted))
    return (*rules, *(rule for rule in dated if rule is not None))
