"""Rebuild a nested Arrow type with changed child types."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

ChangeType = Callable[[pa.DataType], pa.DataType]


def map_children(type_: pa.DataType, change: ChangeType, *, number_fields: bool = False) -> pa.DataType:
    """Apply ``change`` to the direct child types of ``type_``; return a type without children unchanged.

    ``number_fields`` renames the fields of structs to f0, f1 and so on.

    >>> map_children(pa.list_(pa.string_view()), lambda _: pa.string())
    ListType(list<item: string>)
    """
    t = pa.types
    if t.is_struct(type_):
        fields = [field.with_type(change(field.type)) for field in type_]
        return pa.struct([f.with_name(f"f{i}") for i, f in enumerate(fields)] if number_fields else fields)
    if t.is_map(type_):
        key, item = type_.key_field, type_.item_field
        changed = (key.with_type(change(key.type)), item.with_type(change(item.type)))
        return pa.map_(*changed, keys_sorted=type_.keys_sorted)
    if t.is_list(type_) or t.is_large_list(type_) or t.is_fixed_size_list(type_):
        value = type_.value_field.with_type(change(type_.value_type))
        if t.is_large_list(type_):
            return pa.large_list(value)
        return pa.list_(value, type_.list_size if t.is_fixed_size_list(type_) else -1)
    return type_
