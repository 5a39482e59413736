"""Column groups: sets of R's columns stored together on disk, so that a join reads only the groups it needs."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from semistream.errors import ColumnNotFound, InvalidArgument

Groups = tuple[tuple[str, ...], ...]

NARROW_ROW_BYTES = 256
"""Maximum width of a row stored in one group: reading such rows whole takes one request and hardly more time."""

GROUP_BYTES = 16
"""Bytes per row in an automatically chosen group.

A smaller value means more and shorter requests to read all columns; a larger one means reading unneeded columns.
"""

_GUESSED_BYTES = 20  # assumed size of a string or list, chosen before any data is read


def choose_groups(schema: pa.Schema, key: tuple[str, ...], named: Sequence[Sequence[str]] | None = None) -> Groups:
    """Return the columns of each group in the order of ``schema``, the key's group first; empty if all share one group.

    Each group in ``named`` is stored together. A group that names a key column is stored with the key, and so every
    join reads it. The remaining columns are stored with the key if rows are narrow, otherwise in small groups.
    """
    asked = [_checked(group, schema) for group in named or ()]
    placed = [name for group in asked for name in group]
    if len(set(placed)) < len(placed):
        twice = sorted({name for name in placed if placed.count(name) > 1})
        raise InvalidArgument(f"column_groups name {', '.join(twice)} twice; put each column in one group.")
    with_key = {*key, *(name for group in asked if not group.isdisjoint(key) for name in group)}
    groups = [group for group in asked if group.isdisjoint(key)]
    rest = [name for name in schema.names if name not in placed and name not in with_key]
    if sum(type_bytes(field.type) for field in schema) <= NARROW_ROW_BYTES:
        with_key.update(rest)
    else:
        groups.extend(_packed(rest, schema))
    if not groups:
        return ()
    in_order = sorted(groups, key=lambda group: min(map(schema.get_field_index, group)))
    return tuple(tuple(name for name in schema.names if name in group) for group in (with_key, *in_order))


def _checked(group: Sequence[str], schema: pa.Schema) -> set[str]:
    if isinstance(group, str):
        raise InvalidArgument(
            f"column_groups contains {group!r}; give lists of columns, such as [[{group!r}, ...], ...]."
        )
    for name in group:
        if name not in schema.names:
            raise ColumnNotFound(name, schema.names, where="the relation's data, to which column_groups refer,")
    if len(set(group)) < len(group) or not group:
        raise InvalidArgument(f"a column group is ({', '.join(group)}); name one or more columns, each once.")
    return set(group)


def _packed(names: Sequence[str], schema: pa.Schema) -> list[set[str]]:
    """Group neighbouring columns, as many as fit in `GROUP_BYTES`."""
    groups: list[set[str]] = []
    room = 0
    for name in names:
        width = type_bytes(schema.field(name).type)
        if width > room or not groups:
            groups.append(set())
            room = GROUP_BYTES
        groups[-1].add(name)
        room -= width
    return groups


def type_bytes(type_: pa.DataType) -> int:
    """Return the bytes of a value of this type, estimated if they vary."""
    if pa.types.is_struct(type_):
        return sum(type_bytes(type_.field(i).type) for i in range(type_.num_fields))
    if pa.types.is_fixed_size_list(type_):
        return int(type_.list_size) * type_bytes(type_.value_type)
    if pa.types.is_null(type_):
        return 0
    try:
        return -(-int(type_.bit_width) // 8)
    except ValueError:
        return _GUESSED_BYTES
