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
    if t.is_struct(type_) or t.is_union(type_):
        fields = [type_.field(i) for i in range(type_.num_fields)]
        fields = [field.with_type(change(field.type)) for field in fields]
        if t.is_union(type_):
            return pa.union(fields, type_.mode, type_.type_codes)
        return pa.struct([f.with_name(f"f{i}") for i, f in enumerate(fields)] if number_fields else fields)
    if t.is_map(type_):
        key, item = type_.key_field, type_.item_field
        changed = (key.with_type(change(key.type)), item.with_type(change(item.type)))
        return pa.map_(*changed, keys_sorted=type_.keys_sorted)
    made: dict[int, Callable[[pa.Field], pa.DataType]] = {
        pa.lib.Type_LIST: pa.list_,
        pa.lib.Type_LARGE_LIST: pa.large_list,
        pa.lib.Type_LIST_VIEW: pa.list_view,
        pa.lib.Type_LARGE_LIST_VIEW: pa.large_list_view,
        pa.lib.Type_FIXED_SIZE_LIST: lambda value: pa.list_(value, type_.list_size),
    }
    if type_.id in made:
        return made[type_.id](type_.value_field.with_type(change(type_.value_type)))
    return type_
