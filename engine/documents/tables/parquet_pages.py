"""How many rows of a Parquet file can be read at a time, so that few compressed bytes do not fill the memory.

A value in the dictionary of a column is stored once, whatever number of rows has it, and a page can be compressed
to a thousandth of its size. So the number of rows of a batch is bounded by the largest value that a row may have:
the dictionary as a whole, or the mean size of the rows. The sizes of dictionaries and other pages are in their
headers (Apache Parquet, `parquet.thrift`, `PageHeader`), which pyarrow does not give out.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from quarry.formats.errors import InvalidDocument

__all__ = ["PageLimits", "bounded_batch_rows"]


class PageLimits(NamedTuple):
    """Limits of what is read of a file.

    Attributes:
        dictionary_bytes: the largest dictionary of a column, inflated; writers make them of about 1 MiB.
        page_bytes: the largest page at the beginning of a column, inflated; it is read as a whole.
        batch_bytes: the size of the values of a batch.
    """

    dictionary_bytes: int = 256 << 20
    page_bytes: int = 1 << 30
    batch_bytes: int = 64 << 20


_LIMITS = PageLimits()
_NUMBER_BYTES = 8
_HEADER_BYTES = 16  # of which the type of a page and its inflated size take at most 12
_INTEGER_FIELD = 0x15  # the next field of a struct, an i32, in the compact protocol of Thrift


def bounded_batch_rows(
    path: Path,
    metadata: Any,  # noqa: ANN401  # of pyarrow
    most: int,
    content: bytes | None = None,
    limits: PageLimits = _LIMITS,
) -> int:
    """Return how many rows to read at a time, from 1 to `most`.

    Args:
        path: the path of the file.
        metadata: what `pyarrow.parquet.ParquetFile.metadata` is.
        most: number of rows to read at a time when they are small.
        content: the content of the file, if it was read already.
        limits: the limits of what is read.

    Raises:
        InvalidDocument: a dictionary, or the first page of a column, is larger than its limit.
        OSError: the system does not let the file be read.
    """
    largest = 1
    with path.open("rb") if content is None else io.BytesIO(content) as file:
        for group in map(metadata.row_group, range(metadata.num_row_groups)):
            sizes = (_row_bytes(file, path, chunk, group.num_rows, limits) for chunk in _chunks(group))
            largest = max(largest, sum(sizes))
    return max(1, min(most, limits.batch_bytes // largest))


def _chunks(group: Any) -> Iterator[Any]:  # noqa: ANN401
    return (group.column(number) for number in range(group.num_columns))


def _row_bytes(file: BinaryIO, path: Path, chunk: Any, n_rows: int, limits: PageLimits) -> int:  # noqa: ANN401
    """Return a bound of the size of a row's values in a column, or their mean size if there is no dictionary."""
    _check_size(_inflated_bytes(file, chunk.data_page_offset), limits.page_bytes, "page", path, chunk)
    n_values = -(-chunk.num_values // max(1, n_rows))  # more than 1 in a column of lists
    mean = -(-chunk.total_uncompressed_size // max(1, n_rows))
    if chunk.physical_type != "BYTE_ARRAY":
        return int(max(mean, n_values * _NUMBER_BYTES))
    if not chunk.has_dictionary_page:
        return int(mean)
    n_bytes = _inflated_bytes(file, chunk.dictionary_page_offset)
    _check_size(n_bytes, limits.dictionary_bytes, "dictionary", path, chunk)
    return int(max(mean, n_values * n_bytes))


def _check_size(n_bytes: int, most: int, name: str, path: Path, chunk: Any) -> None:  # noqa: ANN401
    if n_bytes > most:
        raise InvalidDocument(
            f"the column {chunk.path_in_schema!r} has a {name} that is too large",
            path=path,
            expected=f"at most {most} bytes inflated, as in a file that is written with smaller row groups",
            actual=n_bytes,
        )


def _inflated_bytes(file: BinaryIO, offset: int) -> int:
    """Return the inflated size of a page; 0 for a header that is none, which reading the page then refuses."""
    file.seek(offset)
    header = file.read(_HEADER_BYTES)
    numbers: list[int] = []
    at = 0
    while len(numbers) < 2:  # the fields 1, type, and 2, uncompressed_page_size
        if header[at : at + 1] != bytes([_INTEGER_FIELD]):
            return 0
        value = shift = 0
        at += 1
        while at < len(header):
            value |= (header[at] & 0x7F) << shift
            shift += 7
            at += 1
            if header[at - 1] < 0x80:
                break
        numbers.append((value >> 1) ^ -(value & 1))  # zigzag
    return max(0, numbers[1])
