"""Parquet files whose content is broken, though their footers are not."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq


def break_pages(path: Path, group: int, column: int) -> None:
    """Overwrite the data of one column of a row group, behind its first page's header."""
    place = pq.read_metadata(path).row_group(group).column(column)
    content = bytearray(path.read_bytes())
    begin = place.data_page_offset
    content[begin + 40 : begin + place.total_compressed_size] = b"\xff" * (place.total_compressed_size - 40)
    path.write_bytes(bytes(content))
