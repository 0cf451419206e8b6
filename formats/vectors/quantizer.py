"""The quantizer file: coarse centroids of IVF, PQ codebooks, and an optional rotation.

It is immutable and named by its content, so that segments that share it can be merged by concatenating
their lists. Sections: ``coarse`` (nlist, dim) float32, ``encode_codebook`` (M, ksub, dsub)
float32, ``score_codebook`` of the same shape if it was trained separately (RepCONC section 4, JPQ: documents
are encoded with one, scored with the other), ``rotation`` (dim, input_dim) float32 if there is one, and
``probe_recall`` (nlist,) float32 if it was measured. Its fields have the quantization error of the rows that it
was trained for, and calibrated settings of searches.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

import numpy as np

from quarry.formats.arrays import Float32Array, Int64Array
from quarry.formats.container.directory import Directory
from quarry.formats.container.fields import Fields
from quarry.formats.container.layout import (
    CANDIDATE_ROWS_FEATURE,
    DISTANCES_FEATURE,
    SEARCH_SETTINGS_FEATURE,
    UNIT_LENGTH_FEATURE,
    FileKind,
    FileRecord,
)
from quarry.formats.container.reader import ContainerReader
from quarry.formats.container.sections import digest
from quarry.formats.container.spool import make_temporary_name
from quarry.formats.container.writer import ContainerWriter
from quarry.formats.errors import CorruptFile, FormatError
from quarry.formats.vectors.distances import DistanceReduction

__all__ = [
    "MAX_DIM",
    "MAX_NLIST",
    "QuantizationError",
    "Quantizer",
    "SearchSetting",
    "StoredQuantizer",
    "combine_errors",
    "list_imbalance",
    "open_quantizer",
    "read_quantizer",
    "write_quantizer",
]

_MAX_ERROR = 1e60
_MAX_ENCODED_ROWS = 1 << 40


@dataclass(frozen=True, kw_only=True)
class QuantizationError:
    """The quantization error of rows, and how evenly they are distributed over the lists.

    Attributes:
        n_rows: encoded rows; in a quantizer the rows of the index that it was trained for.
        coarse_error: mean squared distance of a row to its coarse centroid, estimated on a sample.
        code_error: mean squared distance of a row to its decoded code, estimated on a sample.
        imbalance: nlist * sum(size^2) / rows^2: 1 for lists of equal length, more if the lists are unbalanced.
    """

    n_rows: int
    coarse_error: float
    code_error: float
    imbalance: float

    @classmethod
    def from_fields(cls, fields: Fields | None) -> QuantizationError | None:
        """Read the fields of an error; None if nothing was recorded."""
        if fields is None:
            return None
        fit = cls(
            n_rows=fields.integer("n_rows", 1, _MAX_ENCODED_ROWS),
            coarse_error=fields.number("coarse_error", 0.0, _MAX_ERROR),
            code_error=fields.number("code_error", 0.0, _MAX_ERROR),
            imbalance=fields.number("imbalance", 0.0, _MAX_ERROR),
        )
        fields.refuse_unknown()
        return fit


def combine_errors(
    fits: Sequence[QuantizationError | None], n_rows: Sequence[int], imbalance: float
) -> QuantizationError | None:
    """Return the error of several parts of `n_rows` each together, or None if one is not known."""
    known = [fit for fit in fits if fit is not None]
    if len(known) < len(fits):
        return None
    return QuantizationError(
        n_rows=sum(n_rows),
        coarse_error=float(np.average([fit.coarse_error for fit in known], weights=n_rows)),
        code_error=float(np.average([fit.code_error for fit in known], weights=n_rows)),
        imbalance=imbalance,
    )


def list_imbalance(sizes: Int64Array) -> float:
    """Return the imbalance of lists of these sizes; see `QuantizationError`."""
    total = float(sizes.sum())
    return len(sizes) * float((sizes.astype(np.float64) ** 2).sum()) / total**2 if total else 0.0


_MAX_SETTINGS = 16
_MAX_HITS = 1 << 20
_MAX_ROWS = 1 << 32


@dataclass(frozen=True, slots=True)
class SearchSetting:
    """Settings with which a search for k hits finds nearly all of the best k documents.

    Attributes:
        k: number of hits.
        nprobe: number of inverted lists to read.
        rows: number of rows with the best scores by their codes to rescore.
    """

    k: int
    nprobe: int
    rows: int


def read_settings(fields: Fields, name: str, nlist: int) -> tuple[SearchSetting, ...]:
    """Read a field with an array of the fields of `SearchSetting`.

    Args:
        fields: the fields of the file.
        name: name of the field.
        nlist: number of lists of the quantizer.

    Raises:
        CorruptFile: there are no settings or more than 16, a number is out of bounds, or k does not ascend.
    """
    items = fields.items(name, _MAX_SETTINGS)
    settings = [_read(Fields(item, fields.path, f"field {name}"), nlist) for item in items]
    hits = [setting.k for setting in settings]
    if not hits or hits != sorted(set(hits)):
        raise CorruptFile(f"field {name} is not in order", path=fields.path, expected="ascending k", actual=hits)
    return tuple(settings)


def _read(fields: Fields, nlist: int) -> SearchSetting:
    setting = SearchSetting(
        k=fields.integer("k", 1, _MAX_HITS),
        nprobe=fields.integer("nprobe", 1, nlist),
        rows=fields.integer("rows", 1, _MAX_ROWS),
    )
    fields.refuse_unknown()
    return setting


MAX_DIM = 1 << 16
MAX_NLIST = 1 << 24
MAX_CANDIDATE_ROWS = 1 << 32
MIN_NORM, MAX_NORM = 1e-40, 1e30  # of `DistanceReduction`
METRIC = "inner_product"
UNIT_LENGTH_MARK = b"unit_length"  # in the text of the identity


@dataclass(frozen=True, eq=False)
class Quantizer:
    """Assigns a list and a code to each vector.

    Attributes:
        coarse: (nlist, dim) float32, the coarse centroids.
        encode_codebook: (M, ksub, dsub) float32, codewords for encoding documents.
        score_codebook: (M, ksub, dsub) float32, codewords for scoring codes.
        rotation: (dim, input_dim) float32 applied to every vector first, or None.
        by_residual: whether a code encodes the vector minus its coarse centroid.
        unit_length: whether a decoded vector is scaled to length 1, the length of the vectors that are encoded.
        distances: makes rows and queries for Euclidean distances; None: inner products are compared.
        probe_recall: (nlist,) float32, ascending, from 0 to 1: element i is the share of the nearest rows that are
            in the i + 1 lists with the largest inner products; None: not measured.
        fit: quantization error of the training rows; not part of the identity. None: not recorded.
        candidate_rows: how many of the rows with the best scores of their codes contain nearly all of the best ten
            documents; not part of the identity. None: not measured.
        search_settings: calibrated settings, by ascending numbers of hits; not part of the identity. Empty: not
            calibrated with queries.
    """

    coarse: Float32Array
    encode_codebook: Float32Array
    score_codebook: Float32Array
    rotation: Float32Array | None
    by_residual: bool
    probe_recall: Float32Array | None = None
    fit: QuantizationError | None = None
    candidate_rows: int | None = None
    search_settings: tuple[SearchSetting, ...] = ()
    unit_length: bool = False
    distances: DistanceReduction | None = None

    @property
    def nlist(self) -> int:
        """Number of inverted lists."""
        return len(self.coarse)

    @property
    def nbits(self) -> int:
        """Bits of one sub-quantizer's code: 4 or 8."""
        return int(self.encode_codebook.shape[1]).bit_length() - 1

    @property
    def code_bytes(self) -> int:
        """Bytes of one vector's code."""
        return len(self.encode_codebook) * self.nbits // 8

    @property
    def input_dim(self) -> int:
        """Dimensions of input vectors."""
        return int((self.coarse if self.rotation is None else self.rotation).shape[1])

    @property
    def n_bytes(self) -> int:
        """Memory of its arrays."""
        parts = {id(part): part for part in (self.coarse, self.encode_codebook, self.score_codebook)}
        parts |= {id(part): part for part in (self.rotation, self.probe_recall) if part is not None}
        return sum(part.nbytes for part in parts.values())

    def extend_rows(self, rows: Float32Array) -> Float32Array:
        """Return (n, input_dim) float32 stored rows as lists and codes have them, before the rotation."""
        return rows if self.distances is None else self.distances.rows(rows)

    def extend_queries(self, queries: Float32Array) -> Float32Array:
        """Return (n, input_dim) float32 queries as lists and codes are searched, before the rotation."""
        return queries if self.distances is None else self.distances.queries(queries)

    def rotate(self, vectors: Float32Array) -> Float32Array:
        """Return (n, input_dim) float32 vectors rotated, (n, dim) float32; unchanged without a rotation."""
        return vectors if self.rotation is None else vectors @ self.rotation.T

    def identity(self) -> str:
        """Return XXH3-128 of the content, 32 hex digits."""
        parts = [self.coarse, self.encode_codebook, self.score_codebook]
        parts += [part for part in (self.rotation, self.probe_recall) if part is not None]
        shapes = repr(([part.shape for part in parts], self.by_residual, METRIC)).encode()
        shapes += UNIT_LENGTH_MARK if self.unit_length else b""
        shapes += b"" if self.distances is None else repr((self.distances.dim, self.distances.norm)).encode()
        data = b"".join(np.ascontiguousarray(part, np.float32).tobytes() for part in parts)
        return digest(shapes + data).hex()


class StoredQuantizer(NamedTuple):
    """A quantizer with its file."""

    quantizer: Quantizer
    record: FileRecord


def write_quantizer(directory: Directory, quantizer: Quantizer) -> FileRecord:
    """Write the quantizer to a file named by its content, unless an intact file of that name exists."""
    identity = quantizer.identity()
    name = f"{identity}.quant"
    if name in directory.names():
        with contextlib.suppress(FormatError):  # for example of an interrupted writer
            return open_quantizer(directory, name).record
        directory.delete(name)
    record = _write_temporary(directory, quantizer, bytes.fromhex(identity))
    try:
        directory.rename(record.name, name)
    except BaseException:
        directory.delete(record.name)
        raise
    return replace(record, name=name)


def _write_temporary(directory: Directory, quantizer: Quantizer, file_id: bytes) -> FileRecord:
    """Write it under a temporary name, so that no incomplete file has the final name."""
    known, features = _optional_fields(quantizer)
    required = UNIT_LENGTH_FEATURE if quantizer.unit_length else 0
    required |= DISTANCES_FEATURE if quantizer.distances else 0
    writer = ContainerWriter(directory, make_temporary_name(), FileKind.QUANTIZER, file_id, features, required)
    writer.add("coarse", quantizer.coarse)
    writer.add("encode_codebook", quantizer.encode_codebook)
    if quantizer.score_codebook is not quantizer.encode_codebook:
        writer.add("score_codebook", quantizer.score_codebook)
    if quantizer.rotation is not None:
        writer.add("rotation", quantizer.rotation)
    if quantizer.probe_recall is not None:
        writer.add("probe_recall", quantizer.probe_recall)
    n_sub, ksub, dsub = quantizer.encode_codebook.shape
    return writer.finish(
        {
            "metric": METRIC,
            "by_residual": quantizer.by_residual,
            "nlist": quantizer.nlist,
            "dim": n_sub * dsub,
            "input_dim": quantizer.input_dim,
            "M": n_sub,
            "nbits": int(ksub).bit_length() - 1,
            "fit": asdict(quantizer.fit) if quantizer.fit else None,
            **known,
        }
    )


def _optional_fields(quantizer: Quantizer) -> tuple[dict[str, object], int]:
    """Return the fields that not all files have, and the feature bits of those that readers may ignore."""
    known: dict[str, object] = {"unit_length": True} if quantizer.unit_length else {}
    if quantizer.distances is not None:
        known["distances"] = asdict(quantizer.distances)
    features = 0
    if quantizer.candidate_rows is not None:
        known["candidate_rows"] = quantizer.candidate_rows
        features |= CANDIDATE_ROWS_FEATURE
    if quantizer.search_settings:
        known["search_settings"] = [asdict(setting) for setting in quantizer.search_settings]
        features |= SEARCH_SETTINGS_FEATURE
    return known, features


def open_quantizer(directory: Directory, name: str) -> StoredQuantizer:
    """Read a quantizer file that no manifest names.

    Args:
        directory: its folder.
        name: name of the file, that of its content.

    Raises:
        FileNotFoundError: there is no such file.
        FormatError: it is damaged, or contradicts itself or its name.
    """
    container = ContainerReader(directory, name, FileKind.QUANTIZER)
    container.close()
    return StoredQuantizer(read_quantizer(directory, container.record), container.record)


def read_quantizer(directory: Directory, record: FileRecord) -> Quantizer:
    """Read a quantizer file completely; it is small compared with segments.

    Raises:
        FormatError: it is damaged, or contradicts itself or its name.
    """
    container = ContainerReader(directory, record.name, FileKind.QUANTIZER, record)
    try:
        quantizer = _read_fields(container)
    finally:
        container.close()
    if f"{quantizer.identity()}.quant" != record.name:
        raise CorruptFile("the content of the quantizer does not match its name", path=container.path)
    return quantizer


def _read_fields(container: ContainerReader) -> Quantizer:
    fields = container.fields
    fields.choice("metric", (METRIC,))
    by_residual = fields.boolean("by_residual")
    nlist = fields.integer("nlist", 1, MAX_NLIST)
    dim = fields.integer("dim", 1, MAX_DIM)
    input_dim = fields.integer("input_dim", 1, MAX_DIM)
    n_sub = fields.integer("M", 1, dim)
    nbits = fields.integer("nbits", 4, 8)
    fit = QuantizationError.from_fields(fields.optional_child("fit"))
    candidate_rows = None
    if container.optional_features & CANDIDATE_ROWS_FEATURE:
        candidate_rows = fields.integer("candidate_rows", 1, MAX_CANDIDATE_ROWS)
    search_settings: tuple[SearchSetting, ...] = ()
    if container.optional_features & SEARCH_SETTINGS_FEATURE:
        search_settings = read_settings(fields, "search_settings", nlist)
    unit_length = bool(container.required_features & UNIT_LENGTH_FEATURE)
    if unit_length and not fields.boolean("unit_length"):
        raise CorruptFile("unit_length contradicts the features of the file", path=container.path)
    distances = None
    if container.required_features & DISTANCES_FEATURE:
        child = fields.child("distances")
        distances = DistanceReduction(
            child.integer("dim", 1, input_dim - 1), child.number("norm", MIN_NORM, MAX_NORM)
        )
    if nbits not in (4, 8) or dim % n_sub or n_sub * nbits % 8:
        raise CorruptFile(
            "invalid code layout", path=container.path, actual=f"M {n_sub}, nbits {nbits}, dim {dim}"
        )
    if not container.has("rotation") and input_dim != dim:
        raise CorruptFile("rotation is missing", path=container.path)
    shape = (n_sub, 1 << nbits, dim // n_sub)
    encode = _read_floats(container, "encode_codebook", shape)
    score = _read_floats(container, "score_codebook", shape) if container.has("score_codebook") else encode
    rotation = _read_floats(container, "rotation", (dim, input_dim)) if container.has("rotation") else None
    coarse = _read_floats(container, "coarse", (nlist, dim))
    recall = _read_recall(container, nlist) if container.has("probe_recall") else None
    container.refuse_unknown()
    return Quantizer(
        coarse=coarse,
        encode_codebook=encode,
        score_codebook=score,
        rotation=rotation,
        by_residual=by_residual,
        probe_recall=recall,
        fit=fit,
        candidate_rows=candidate_rows,
        search_settings=search_settings,
        unit_length=unit_length,
        distances=distances,
    )


def _read_recall(container: ContainerReader, nlist: int) -> Float32Array:
    recall = _read_floats(container, "probe_recall", (nlist,))
    if recall[0] < 0 or recall[-1] > 1 or (recall[1:] < recall[:-1]).any():
        raise CorruptFile("section probe_recall does not ascend within 0 to 1", path=container.path)
    return recall


def _read_floats(container: ContainerReader, name: str, shape: tuple[int, ...]) -> Float32Array:
    values = container.section(name, np.float32, shape).array().astype(np.float32)
    if not np.isfinite(values).all():
        raise CorruptFile(f"section {name} has values that are not finite", path=container.path)
    return values
