"""Column groups: which columns of R lie together on disk, so that a join reads only the groups that it needs."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from semistream.errors import ColumnNotFound, InvalidArgument

Groups = tuple[tuple[str, ...], ...]

NARROW_ROW_BYTES = 256
"""Rows up to so wide lie in one group: to read them whole takes one request and hardly more time."""

GROUP_BYTES = 16
"""What a row has in a group that nobody asked for.

With less, reading all columns takes more and shorter requests; with more, a few columns are read with many others.
"""

_GUESSED_BYTES = 20  # of a string, or of a list: nobody has seen them yet


def choose_groups(schema: pa.Schema, key: tuple[str, ...], named: Sequence[Sequence[str]] | None = None) -> Groups:
    """The columns of each group, in the order of ``schema``, the key's first; none if all columns lie together.

    Columns that are ``named`` together are read together; a group that names a column of the key is read with it, and
    so by every join. Of the others, those of narrow rows lie with the key, and those of wide rows a few at a time.
    """
    asked = [_checked(group, schema) for group in named or ()]
    placed = [name for group in asked for name in group]
    if len(set(placed)) < len(placed):
        twice = sorted({name for name in placed if placed.count(name) > 1})
        raise InvalidArgument(f"column_groups name {', '.join(twice)} twice; a column lies in one group.")
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
        raise InvalidArgument(f"column_groups has {group!r}; give lists of columns, such as [[{group!r}, ...], ...].")
    for name in group:
        if name not in schema.names:
            raise ColumnNotFound(name, schema.names, where="the relation's data, to which column_groups refer,")
    if len(set(group)) < len(group) or not group:
        raise InvalidArgument(f"a column group is ({', '.join(group)}); name one or more columns, each once.")
    return set(group)


def _packed(names: Sequence[str], schema: pa.Schema) -> list[set[str]]:
    """Neighbours together, as many as `GROUP_BYTES` take."""
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
    """Bytes of a value, as far as its type tells."""
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
