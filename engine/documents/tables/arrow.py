"""Rows of Arrow data: Parquet and Arrow files, and objects that export it through the Arrow PyCapsule interface.

The interface (Arrow project, "The Arrow PyCapsule Interface") is what pyarrow, DuckDB, polars and others have in
common. This module is the one that imports pyarrow.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from quarry.engine.documents.entries import Entries, Entry
from quarry.engine.documents.tables.columns import Columns, checked_names
from quarry.engine.documents.tables.conversion import NotConverted, Row, attempt, cells_one_by_one, entry_of
from quarry.engine.documents.tables.parquet_pages import bounded_batch_rows
from quarry.formats.errors import InvalidDocument, InvalidSetting
from quarry.formats.system_errors import access_failed

__all__ = ["ArrowRows", "arrow_columns", "arrow_vectors", "exports_arrow", "is_arrow_column", "open_arrow_column"]

_BATCH_ROWS = 256
_CONVERTED_BYTES = 64 << 20  # of the rows that are converted at a time
_LIBRARY = "the library pyarrow: pip install 'quarry-search[tables]'"


def exports_arrow(value: object) -> bool:
    """Whether an object exports a stream of record batches, or one batch."""
    return hasattr(type(value), "__arrow_c_stream__") or hasattr(type(value), "__arrow_c_array__")


def is_arrow_column(value: object) -> bool:
    """Whether an object is one column of pyarrow, and no table or batch."""
    return hasattr(value, "to_pylist") and not hasattr(value, "schema")


def open_arrow_column(value: object, name: str) -> Any:  # noqa: ANN401
    """Return a column that is exported as Arrow data as a chunked array of pyarrow.

    Args:
        value: see `exports_arrow`.
        name: the name of the argument, for errors.

    Raises:
        InvalidSetting: pyarrow is missing, or the value is not a column.
    """
    arrow = _import_arrow(f"{name} cannot be read")
    try:
        if hasattr(type(value), "__arrow_c_stream__"):
            return arrow.chunked_array(value)
        return arrow.chunked_array([arrow.array(value)])
    except (arrow.ArrowException, TypeError, ValueError) as error:
        kind = type(value).__name__
        raise InvalidSetting(f"{name} cannot be read", expected="one column of Arrow data", actual=kind) from error


def arrow_columns(value: object) -> dict[str, Any]:
    """Return the columns of a table, a record batch or a stream of these as chunked arrays of pyarrow, by name.

    Raises:
        InvalidSetting: pyarrow is missing, the value is not a table, or two columns have the same name.
    """
    arrow = _import_arrow("the table cannot be read")
    try:
        table = arrow.table(value) if hasattr(type(value), "__arrow_c_stream__") else arrow.record_batch(value)
    except (arrow.ArrowException, TypeError, ValueError) as error:
        kind = type(value).__name__
        raise InvalidSetting("the table cannot be read", expected="a table with columns", actual=kind) from error
    names = checked_names(table.schema.names)
    return {name: arrow.chunked_array(table.column(name)) for name in names}


def arrow_vectors(column: Any, name: str, n_each: int = 1) -> npt.NDArray[Any]:  # noqa: ANN401
    """Return a column of lists of numbers, all of the same length, as a (n, dim) array, if possible as a view.

    A column of lists of such lists becomes (n, m, dim).

    Args:
        column: an array or chunked array of pyarrow.
        name: the name of the column, for errors.
        n_each: lists in each row, which are numbered in errors.

    Raises:
        InvalidDocument: a row has no list, a list of another length, or a number is missing.
        InvalidSetting: the column has no lists of numbers.
    """
    arrow = _import_arrow(f"{name} cannot be read")
    chunks = column.chunks if isinstance(column, arrow.ChunkedArray) else [column]
    joined = chunks[0] if len(chunks) == 1 else arrow.concat_arrays(chunks) if chunks else column.combine_chunks()
    if arrow.types.is_dictionary(joined.type):
        joined = joined.dictionary_decode()
    kinds = (arrow.types.is_list, arrow.types.is_large_list, arrow.types.is_fixed_size_list)
    if not any(is_kind(joined.type) for is_kind in kinds):
        raise InvalidSetting(f"{name} is not a column of vectors", expected="lists of numbers", actual=joined.type)
    if joined.null_count:
        row = joined.is_null().to_pylist().index(True) // n_each
        raise InvalidDocument(f"column {name!r}, row {row}: is missing", expected="a vector")
    lengths = joined.value_lengths().to_numpy(zero_copy_only=False) if len(joined) else np.zeros(0, np.int64)
    if len(lengths) and (lengths != lengths[0]).any():
        place = int((lengths != lengths[0]).argmax())
        raise InvalidDocument(
            f"column {name!r}, row {place // n_each}: has another length than the rows before",
            expected=int(lengths[0]),
            actual=int(lengths[place]),
        )
    numbers = joined.flatten()
    dim = int(lengths[0]) if len(lengths) else 1
    if n_each == 1 and len(numbers) and any(is_kind(numbers.type) for is_kind in kinds):
        vectors = arrow_vectors(numbers, name, dim)
        return vectors.reshape(len(joined), dim, vectors.shape[-1])
    if numbers.null_count:
        row = numbers.is_null().to_pylist().index(True) // (dim * n_each)
        raise InvalidDocument(f"column {name!r}, row {row}: a number is missing", expected="numbers")
    try:
        return np.asarray(numbers.to_numpy(zero_copy_only=False)).reshape(len(joined), -1 if len(joined) else dim)
    except (arrow.ArrowException, ValueError) as error:
        kind = joined.type
        raise InvalidSetting(
            f"{name} is not a column of vectors", expected="lists of numbers", actual=kind
        ) from error


def _import_arrow(problem: str, path: Path | None = None) -> Any:  # noqa: ANN401
    try:
        import pyarrow
    except ImportError as error:
        raise InvalidSetting(problem, path=path, expected=_LIBRARY) from error
    return pyarrow


class ArrowRows(Entries):
    """The rows of a file or object, a few at a time.

    Args:
        source: the path of a ``.parquet`` file, or of an Arrow file or stream; or an object that exports Arrow
            data.
        columns: what its columns are.
        content: the content of the file, if it was read already.

    Raises:
        InvalidSetting: pyarrow is missing, a column that is named is missing, or the object is not a table.
        AccessFailed: the system does not let the file be opened.
        InvalidDocument: the file is damaged, or of another kind.
    """

    def __init__(self, source: object, columns: Columns, content: bytes | None = None) -> None:
        self._columns = columns
        self._content = content
        self._path = source if isinstance(source, Path) else None
        self._n_read = 0
        self._n_rows: int | None = None
        self._file: Any = None
        self._arrow = _import_arrow("cannot be read", self._path)
        try:
            self._batches, names = self._opened(source)
        except InvalidDocument:
            self.close()
            raise
        except self._arrow.ArrowException as error:
            self.close()
            raise self._unreadable(error) from error
        except OSError as error:
            self.close()
            raise access_failed(error, "opened", self._path or ".") from error
        columns.check(names, self._path)

    def __iter__(self) -> Iterator[Entry]:
        """Yield the rows.

        Raises:
            InvalidDocument: rows cannot be read; what follows is not read.
        """
        kind = "row" if self._path else "document"
        while True:
            try:
                batch = next(self._batches, None)
            except (self._arrow.ArrowException, OSError, ValueError) as error:
                raise self._unreadable(error) from error
            if batch is None:
                return
            for row in self._rows(batch):
                self._n_read += 1
                yield entry_of(row, self._columns, f"{kind} {self._n_read}", self._path)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def fraction_read(self) -> float | None:
        """How many of the rows have been read."""
        return None if self._n_rows is None else min(1.0, self._n_read / (self._n_rows or 1))

    def _opened(self, source: object) -> tuple[Iterator[Any], list[str]]:
        """The record batches, and the names of the columns."""
        if self._path is None:
            reader = self._exported(source)
            return iter(reader), list(reader.schema.names)
        content = None if self._content is None else self._arrow.BufferReader(self._content)
        if self._path.suffix.lower() == ".parquet":
            from pyarrow import parquet

            self._file = parquet.ParquetFile(self._path if content is None else content)
            self._n_rows = self._file.metadata.num_rows
            n_rows = bounded_batch_rows(self._path, self._file.metadata, _BATCH_ROWS, self._content)
            return self._file.iter_batches(n_rows), list(self._file.schema_arrow.names)
        self._file = self._arrow.memory_map(str(self._path)) if content is None else content
        try:
            opened = self._arrow.ipc.open_file(self._file)
            batches = (opened.get_batch(number) for number in range(opened.num_record_batches))
        except self._arrow.ArrowInvalid:  # not the format with a directory at the end
            self._file.seek(0)
            opened = self._arrow.ipc.open_stream(self._file)
            batches = iter(opened)
        return batches, list(opened.schema.names)

    def _exported(self, source: object) -> Any:  # noqa: ANN401
        try:
            if hasattr(type(source), "__arrow_c_stream__"):
                return self._arrow.RecordBatchReader.from_stream(source)
            batch = self._arrow.record_batch(source)
        except (self._arrow.ArrowException, TypeError, ValueError) as error:
            kind = type(source).__name__
            raise InvalidSetting("docs cannot be read", expected="a table with columns", actual=kind) from error
        return self._arrow.RecordBatchReader.from_batches(batch.schema, [batch])

    def _rows(self, batch: Any) -> Iterator[Row]:  # noqa: ANN401
        """The rows of a batch as dicts; Python's time stamps have microseconds, so nanoseconds are cut off."""
        arrow = self._arrow
        for number, field in enumerate(batch.schema):
            if arrow.types.is_timestamp(field.type) and field.type.unit == "ns":
                micro = arrow.timestamp("us", field.type.tz)
                column = batch.column(number).cast(micro, safe=False)
                batch = batch.set_column(number, arrow.field(field.name, micro), column)
        n_rows = self._convertible_rows(batch)
        for start in range(0, batch.num_rows, n_rows):
            part = batch.slice(start, n_rows)
            rows: list[Row] | NotConverted = attempt(part.to_pylist)
            if isinstance(rows, NotConverted):
                rows = cells_one_by_one(part.schema.names, part.num_rows, partial(_cell, part))
            yield from rows

    def _convertible_rows(self, batch: Any) -> int:  # noqa: ANN401
        """Return how many rows to convert at a time: few if there is a large dictionary, whose values repeat."""
        is_dictionary = self._arrow.types.is_dictionary
        sizes: list[int] = [column.dictionary.nbytes for column in batch.columns if is_dictionary(column.type)]
        return max(1, min(_BATCH_ROWS, _CONVERTED_BYTES // max([1, *sizes])))

    def _unreadable(self, error: Exception) -> InvalidDocument:
        where = f"rows after number {self._n_read} cannot be read"
        return InvalidDocument(where, path=self._path, actual=" ".join(str(error).split())[:200])


def _cell(batch: Any, column: int, row: int) -> object:  # noqa: ANN401
    return batch.column(column)[row].as_py()
