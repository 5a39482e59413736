"""Plain types: columns as the values they stand for, and back in the types they came in.

Operators and pages hold plain types only: no dictionaries, run ends, views, dense unions (whose slices keep all of
their values) or extension types, at any depth. Streams and sources of relations are converted once, at the door.
`BatchConverter` does it both ways.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as is_a

from semistream.errors import InvalidArgument
from semistream.keys.nested_types import map_children

_FIRST_ROWS = 1 << 10
_MOST_ROWS = 1 << 16
_MOST_GROWTH = 2


def plain_type(type_: pa.DataType) -> pa.DataType:
    """Return the type of the values that a column stands for, without encodings and extension types.

    >>> plain_type(pa.list_(pa.dictionary(pa.int8(), pa.string_view())))
    ListType(list<item: string>)
    """
    if isinstance(type_, pa.BaseExtensionType):
        return plain_type(type_.storage_type)
    if is_a.is_dictionary(type_) or is_a.is_run_end_encoded(type_):
        return plain_type(type_.value_type)
    if is_a.is_string_view(type_) or is_a.is_binary_view(type_):
        return pa.string() if is_a.is_string_view(type_) else pa.binary()
    if is_a.is_list_view(type_) or is_a.is_large_list_view(type_):
        list_of = pa.list_ if is_a.is_list_view(type_) else pa.large_list
        return list_of(type_.value_field.with_type(plain_type(type_.value_type)))
    if is_a.is_union(type_):
        children = map_children(type_, plain_type)
        return pa.union([children.field(i) for i in range(children.num_fields)], "sparse", type_.type_codes)
    return map_children(type_, plain_type)


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema with plain types; return the same object if it has no others."""
    types = [plain_type(type_) for type_ in schema.types]
    if types == schema.types:
        return schema
    return pa.schema([field.with_type(type_) for field, type_ in zip(schema, types, strict=True)])


def require_same_values(batch: pa.RecordBatch, plain: pa.Schema, what: str, *, convertible: bool) -> None:
    """Raise `InvalidArgument` unless a batch has the columns of a stream, whose plain types are given.

    If ``convertible``, it may have them in other types that stand for the same values.
    """
    own = batch.schema
    same = own.types == plain.types or (convertible and plain_schema(own).types == plain.types)
    if own.names != plain.names or not same:
        raise InvalidArgument(
            f"{what} has the columns ({_described(own)}), but the stream was declared with ({_described(plain)}). "
            "Select and cast it first."
        )


def _described(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)


def given_back_schema(schema: pa.Schema) -> pa.Schema:
    """Return the types in which plain columns of a stream can come back: the stream's own, but dictionaries unordered.

    A column with a type that Arrow cannot encode anew, such as a dictionary of lists, comes back plain.
    """
    return pa.schema([field.with_type(_given_back(field.type)) for field in schema])


def _given_back(type_: pa.DataType) -> pa.DataType:
    plain, wanted = plain_type(type_), _unordered(type_)
    try:
        converted(pa.nulls(1, plain), wanted)
    except pa.ArrowNotImplementedError:
        return plain
    return wanted


def _unordered(type_: pa.DataType) -> pa.DataType:
    """Return the type with unordered dictionaries: encoded anew, their values are in order of appearance."""
    if is_a.is_dictionary(type_):
        return pa.dictionary(type_.index_type, _unordered(type_.value_type))
    return type_ if isinstance(type_, pa.BaseExtensionType) else map_children(type_, _unordered)


def plain_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch in plain types, as a whole; return the same object if it has no others."""
    return batch_in(batch, plain_schema(batch.schema))


def batch_in(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch in the types of a schema that stand for the same values, as a whole."""
    if batch.schema.types == schema.types:
        return batch
    columns = [converted(column, type_) for column, type_ in zip(batch.columns, schema.types, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def empty_batch(schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch of no rows, with columns of any type."""
    return pa.RecordBatch.from_arrays([pa.nulls(0, type_) for type_ in schema.types], schema=schema)


class BatchConverter:
    """Converter of batches to the types of ``target``, in pieces of about ``most_bytes`` of converted values.

    A dictionary or a view may stand for far more bytes than it has, and a dictionary's index may be too narrow for the
    values of several batches. The number of rows of a piece therefore follows from the pieces before. Batches need
    only stand for the same values as the target: each may have encodings and dictionaries of its own.
    """

    def __init__(self, target: pa.Schema, most_bytes: int) -> None:
        self.target = target
        self._types = target.types
        self._most_bytes = max(most_bytes, 1)
        self._rows = _FIRST_ROWS

    def pieces(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a batch in the types of the target."""
        own = batch.schema.types
        if own == self._types:
            yield batch
            return
        types = list(zip(own, self._types, strict=True))
        changed = [i for i, (given, wanted) in enumerate(types) if given != wanted]
        if batch.num_rows == 0 or not any(_copies(*types[i]) for i in changed):
            yield batch_in(batch, self.target)
            return
        start = 0
        while start < batch.num_rows:
            rows = min(self._rows, batch.num_rows - start)
            try:
                piece = batch_in(batch.slice(start, rows), self.target)
            except (pa.ArrowInvalid, pa.ArrowCapacityError):  # too many values for an index, or bytes for an offset
                if rows == 1:
                    raise
                self._rows = rows // 2
                continue
            start += rows
            nbytes = sum(piece.column(i).nbytes for i in changed)
            yield piece
            fitting = rows * self._most_bytes // max(nbytes, 1)
            self._rows = max(min(fitting, _MOST_GROWTH * max(rows, self._rows), _MOST_ROWS), 1)


def _copies(own: pa.DataType, wanted: pa.DataType) -> bool:
    """True if a conversion copies values: if the types differ in more than extension types."""
    return bool(_storage(own) != _storage(wanted))


def _storage(type_: pa.DataType) -> pa.DataType:
    if isinstance(type_, pa.BaseExtensionType):
        return _storage(type_.storage_type)
    return map_children(type_, _storage)


def converted(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Convert an array to another type that stands for the same values, at any depth.

    Unions become structs of their type codes and children, and back; nulls become nulls of any type, and back.

    >>> converted(pa.array(["a", None, "a"]).dictionary_encode(), pa.string_view()).to_pylist()
    ['a', None, 'a']
    """
    own = array.type
    if own == target:
        return array
    if isinstance(own, pa.BaseExtensionType):
        return converted(array.storage, target)
    if isinstance(target, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(target, converted(array, target.storage_type))
    if is_a.is_null(own) or is_a.is_null(target):
        return pa.nulls(len(array), target)
    if is_a.is_dictionary(own):
        return converted(_taken(array.dictionary, array.indices), target)
    if is_a.is_run_end_encoded(own):
        rows = np.arange(array.offset, array.offset + len(array))
        runs = np.searchsorted(array.run_ends, rows, "right")
        return converted(_taken(array.values, pa.array(runs)), target)
    if is_a.is_dictionary(target):
        encoded = converted(array, plain_type(target)).dictionary_encode()
        values = converted(encoded.dictionary, target.value_type)
        return pa.DictionaryArray.from_arrays(encoded.indices.cast(target.index_type), values, ordered=target.ordered)
    if is_a.is_run_end_encoded(target):
        encoded = pc.run_end_encode(converted(array, plain_type(target)), run_end_type=target.run_end_type)
        return pa.RunEndEncodedArray.from_arrays(encoded.run_ends, converted(encoded.values, target.value_type), target)
    if is_a.is_nested(own):
        return _nested(array, target)
    return array.cast(target)


def _taken(values: pa.Array, rows: pa.Array) -> pa.Array:
    """Take rows of any array, in a type that stands for the same values; Arrow has no kernel for some types."""
    if isinstance(values, pa.ExtensionArray):
        return _taken(values.storage, rows)
    if is_a.is_dictionary(values.type):
        return pa.DictionaryArray.from_arrays(values.indices.take(rows), values.dictionary)
    if is_a.is_string_view(values.type) or is_a.is_binary_view(values.type):
        return _taken_views(values, rows)
    return converted(values, plain_type(values.type)).take(rows)


def _taken_views(values: pa.Array, rows: pa.Array) -> pa.Array:
    """Take rows of an array of views, which share the bytes that they point to."""
    if not len(values):
        return pa.nulls(len(rows), values.type)
    _, own, *data = values.buffers()
    views = np.frombuffer(own, np.dtype("V16"), len(values), 16 * values.offset)
    valid = values.is_valid().take(rows).fill_null(False).to_numpy(zero_copy_only=False)
    taken = views[rows.fill_null(0).to_numpy()]
    buffers = [pa.py_buffer(np.packbits(valid, bitorder="little")), pa.py_buffer(taken), *data]
    return pa.Array.from_buffers(values.type, len(rows), buffers)


def _nested(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Convert an array of lists, structs or unions, child by child."""
    own = array.type
    if is_a.is_union(own):
        return _of_union(array, target)
    if is_a.is_union(target):
        children = [array.field(1 + i) for i in range(target.num_fields)]
        codes = array.field(0).fill_null(target.type_codes[0])  # null where a struct around it is
        return _of_children(array, codes.to_numpy(), children, target)
    if is_a.is_struct(own):
        children = [converted(array.field(i), target.field(i).type) for i in range(own.num_fields)]
        return _rebuilt(array, target, [], children)
    if is_a.is_fixed_size_list(own):
        values = array.values.slice(array.offset * own.list_size, len(array) * own.list_size)
        return _rebuilt(array, target, [], [converted(values, target.value_type)])
    begins, sizes = _list_bounds(array)
    wide = is_a.is_large_list(target) or is_a.is_large_list_view(target)
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    offsets: npt.NDArray[Any] = ends.astype(np.int64 if wide else np.int32)
    if is_a.is_list_view(own) or is_a.is_large_list_view(own):
        first = int(begins[sizes > 0].min(initial=len(array.values)))
        values = array.values.slice(first, max(int((begins + sizes)[sizes > 0].max(initial=0)) - first, 0))
        rows = np.arange(ends[-1]) + np.repeat(begins - first - ends[:-1], sizes)
        child = converted(values, plain_type(target.value_type)).take(pa.array(rows))
    else:
        first = int(begins[0]) if len(array) else 0
        child = array.values.slice(first, int(offsets[-1]))
    child = converted(child, target.field(0).type)
    if is_a.is_list_view(target) or is_a.is_large_list_view(target):
        return _rebuilt(array, target, [offsets[:-1], sizes.astype(offsets.dtype)], [child])
    return _rebuilt(array, target, [offsets], [child])


def _list_bounds(array: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return where each list begins among the values, and its length."""
    offsets = array.offsets.to_numpy().astype(np.int64)
    if not is_a.is_list_view(array.type) and not is_a.is_large_list_view(array.type):
        return offsets[:-1], np.diff(offsets)
    sizes = array.sizes.to_numpy().astype(np.int64)
    if array.null_count:
        sizes[array.is_null().to_numpy(zero_copy_only=False)] = 0
    return offsets, sizes


def _of_union(array: pa.Array, target: pa.DataType) -> pa.Array:
    own = array.type
    codes, *offsets = _union_buffers(array)
    children = [array.field(i) for i in range(own.num_fields)]
    if is_a.is_union(target) and own.mode == target.mode:
        children = [converted(child, target.field(i).type) for i, child in enumerate(children)]
        return _rebuilt(array, target, [codes, *offsets], children)
    if own.mode == "dense":
        chosen = [pa.array(offsets[0], mask=codes != code) for code in own.type_codes]
        plain = [converted(child, plain_type(child.type)) for child in children]
        children = [child.take(rows) for child, rows in zip(plain, chosen, strict=True)]
    return _of_children(array, codes, children, target)


def _union_buffers(array: pa.Array) -> list[npt.NDArray[Any]]:
    """Return the type codes of a union and, if it is dense, its offsets (pyarrow's own accessors ignore slices)."""
    types = [np.int8] if array.type.mode == "sparse" else [np.int8, np.int32]
    if not len(array):
        return [np.empty(0, type_) for type_ in types]
    return [
        np.frombuffer(buffer, type_, len(array), array.offset * np.dtype(type_).itemsize)
        for buffer, type_ in zip(array.buffers()[1:], types, strict=False)
    ]


def _of_children(
    array: pa.Array, codes: npt.NDArray[np.int8], children: Sequence[pa.Array], target: pa.DataType
) -> pa.Array:
    """Return a union, or the struct that stands for it, of children that have a value for each row."""
    if not is_a.is_union(target):
        children = [converted(child, target.field(1 + i).type) for i, child in enumerate(children)]
        return _rebuilt(array, target, [], [pa.array(codes), *children])
    children = [converted(child, target.field(i).type) for i, child in enumerate(children)]
    if target.mode == "sparse":
        return _rebuilt(array, target, [codes], children)
    offsets = np.zeros(codes.size, np.int32)
    for i, code in enumerate(target.type_codes):
        here = codes == code
        offsets[here] = np.arange(np.count_nonzero(here))
        children[i] = children[i].filter(pa.array(here))
    return _rebuilt(array, target, [codes, offsets], children)


def _rebuilt(
    array: pa.Array, target: pa.DataType, buffers: Sequence[npt.NDArray[Any]], children: Sequence[pa.Array]
) -> pa.Array:
    """Return an array of type ``target`` with the nulls of ``array``."""
    validity = None
    if array.null_count and not is_a.is_union(target):
        valid = array.is_valid().to_numpy(zero_copy_only=False)
        validity = pa.py_buffer(np.packbits(valid, bitorder="little"))
    own = [pa.py_buffer(np.ascontiguousarray(buffer)) for buffer in buffers]
    return pa.Array.from_buffers(target, len(array), [validity, *own], children=list(children))
