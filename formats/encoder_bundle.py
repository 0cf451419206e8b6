"""The encoder bundle: a folder with an ONNX graph, its tokenizer and what one must know to use them.

::

    <name>/
    ├── bundle.json       the manifest, UTF-8 JSON
    ├── model.onnx        token ids -> token vectors and pooled vector
    ├── tokenizer.json    text -> token ids, as the tokenizers library reads it
    └── LICENSE, NOTICE   and whatever else the manifest lists under "files"

Nothing in a bundle is trusted: the manifest has a strict schema, every file is named in it with its size and
SHA-256, and names are plain names of regular files in the folder.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import secrets
import shutil
import stat
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Literal, cast

from formats.errors import ChecksumMismatch, CorruptFile, FormatTooNew, InvalidSetting, TruncatedFile
from formats.json_fields import JsonFields, read_json

__all__ = [
    "BUNDLE_FORMAT",
    "MODEL_NAME",
    "TOKENIZER_NAME",
    "EncoderBundle",
    "EncoderSettings",
    "FileRecord",
    "ParityRecord",
    "Pooling",
    "SourceRecord",
    "encoder_identity",
    "load_bundle",
    "write_bundle",
]

BUNDLE_FORMAT: Final = 1
MANIFEST_NAME: Final = "bundle.json"
MODEL_NAME: Final = "model.onnx"
TOKENIZER_NAME: Final = "tokenizer.json"

_MAX_MANIFEST_BYTES: Final = 64 * 1024
_MAX_FILE_BYTES: Final = 2**40
_MAX_FILES: Final = 32
_MAX_DIM: Final = 65536
_MAX_WINDOW: Final = 2**20

_FILE_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_IDENTITY: Final = re.compile(r"[0-9a-f]{32}")
_PRECISION: Final = re.compile(r"[a-z][a-z0-9]{0,15}")

Pooling = Literal["mean", "cls"]


@dataclass(frozen=True, slots=True)
class FileRecord:
    """What the manifest says about one file.

    Attributes:
        sha256: 64 lower-case hexadecimal digits.
        n_bytes: its size.
    """

    sha256: str
    n_bytes: int


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """The file of trained weights that the graph was made from.

    Attributes:
        file: its name, without a folder.
        sha256: 64 lower-case hexadecimal digits.
    """

    file: str
    sha256: str


@dataclass(frozen=True, slots=True)
class ParityRecord:
    """How close the graph is to the fp32 graph of the same weights, by cosine over real texts.

    Attributes:
        n_texts: texts compared.
        token_mean: mean cosine over all tokens of all texts.
        token_min: smallest cosine of a token.
        pooled_mean: mean cosine of the texts' pooled vectors.
        pooled_min: smallest cosine of a pooled vector.
    """

    n_texts: int
    token_mean: float
    token_min: float
    pooled_mean: float
    pooled_min: float


@dataclass(frozen=True, slots=True)
class EncoderSettings:
    """What must be known, beside graph and tokenizer, to encode with them.

    Attributes:
        name: for people, e.g. ``all-MiniLM-L6-v2``.
        precision: of the graph's weights: ``fp32``, ``int8``, ...
        dim: length of a vector.
        window: most tokens the encoder reads at once, special tokens included.
        pooling: ``mean`` over all tokens, or the vector of the first one (``cls``).
        normalise: whether pooled vectors have L2 norm 1.
        query_prefix: put before the text of a query.
        document_prefix: put before every window of a document.
        beta: inverse temperature of the softmax aggregation the encoder was trained with; None when it was not:
            a document's score is then the largest of its centroids' scores.
        trained_representation: name of the representation it was trained for, None when for none.
        source: the trained weights.
        licence: of the weights, as their folder names it, or ``unknown``.
        parity: closeness to fp32, None where the graph is fp32 itself.
    """

    name: str
    precision: str
    dim: int
    window: int
    pooling: Pooling
    normalise: bool
    query_prefix: str
    document_prefix: str
    beta: float | None
    trained_representation: str | None
    source: SourceRecord
    licence: str
    parity: ParityRecord | None


@dataclass(frozen=True, slots=True)
class EncoderBundle:
    """A bundle whose manifest has been read and checked, and whose files are there at their right sizes.

    Attributes:
        path: the folder.
        identity: 32 hexadecimal digits, see `encoder_identity`; the same for all precisions.
        settings: what the manifest says about the encoder.
        files: every file of the bundle but the manifest, by name.
    """

    path: Path
    identity: str
    settings: EncoderSettings
    files: Mapping[str, FileRecord]

    @property
    def model_path(self) -> Path:
        """The ONNX graph."""
        return self.path / MODEL_NAME

    @property
    def tokenizer_path(self) -> Path:
        """The tokenizer."""
        return self.path / TOKENIZER_NAME

    def verify_files(self, names: Iterable[str] | None = None) -> int:
        """Read files whole and compare their digests with the manifest.

        Args:
            names: which of `files`; None for all.

        Returns:
            The number of bytes read.

        Raises:
            ChecksumMismatch: a file's SHA-256 is not the recorded one.
            CorruptFile: a file is gone or is not a regular file.
            TruncatedFile: a file has another size than recorded.
        """
        n_bytes = 0
        for name in self.files if names is None else names:
            record = self.files[name]
            _check_size(self.path / name, record)
            digest = _file_sha256(self.path / name)
            if digest != record.sha256:
                raise ChecksumMismatch(
                    "the file is not the one the manifest names",
                    path=self.path / name,
                    expected=record.sha256,
                    actual=digest,
                )
            n_bytes += record.n_bytes
        return n_bytes


def encoder_identity(settings: EncoderSettings, tokenizer_sha256: str) -> str:
    """Compute the identity of an encoder: vectors of one identity may be compared, others may not.

    It is the first 32 hexadecimal digits of the SHA-256 of a JSON object (keys sorted, no spaces, ASCII) with
    the source weights' digest, the tokenizer's digest, pooling, projection (null so far), normalisation,
    prefixes and window. Precision and runtime are variants of one identity and no part of it.
    """
    parts = {
        "source": settings.source.sha256,
        "tokenizer": tokenizer_sha256,
        "pooling": settings.pooling,
        "projection": None,
        "normalise": settings.normalise,
        "query_prefix": settings.query_prefix,
        "document_prefix": settings.document_prefix,
        "window": settings.window,
    }
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:32]


def load_bundle(path: str | Path) -> EncoderBundle:
    """Read and check the manifest of a bundle; sizes of files are checked, contents are not (`verify_files`).

    Raises:
        InvalidSetting: there is no bundle at the path.
        FormatTooNew: a later version wrote it.
        CorruptFile: the manifest breaks its schema, contradicts itself, or a file is missing or a link.
        TruncatedFile: a file has another size than the manifest says.
    """
    folder = Path(path)
    manifest_path = folder / MANIFEST_NAME
    if not manifest_path.is_file():
        raise InvalidSetting("there is no encoder bundle", path=folder, expected=MANIFEST_NAME)
    fields = JsonFields(read_json(manifest_path, _MAX_MANIFEST_BYTES), manifest_path)
    bundle = _bundle_from(fields, folder)
    for name, record in bundle.files.items():
        _check_size(folder / name, record)
    return bundle


def write_bundle(path: str | Path, settings: EncoderSettings, files: Mapping[str, bytes | Path]) -> EncoderBundle:
    """Write a bundle into a new folder: in full beside it first, then moved to its name.

    Args:
        path: the folder to make.
        settings: goes into the manifest.
        files: contents, or files to copy, by name; ``model.onnx`` and ``tokenizer.json`` among them.

    Returns:
        The bundle, read back.

    Raises:
        InvalidSetting: the folder exists already.
        CorruptFile: settings or names that a reader would refuse; nothing is left behind then.
    """
    folder = Path(path)
    if folder.exists():
        raise InvalidSetting("there is something at the path already; a bundle needs a new folder", path=folder)
    part = folder.with_name(f".{folder.name}.{secrets.token_hex(8)}.part")
    part.mkdir(parents=True)
    try:
        _write_files(part, settings, files)
        load_bundle(part)
        part.rename(folder)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    return load_bundle(folder)


def _write_files(part: Path, settings: EncoderSettings, files: Mapping[str, bytes | Path]) -> None:
    records = {}
    for name, content in sorted(files.items()):
        if not _FILE_NAME.fullmatch(name):
            raise CorruptFile("not a plain file name", path=part, actual=name)
        target = part / name
        if isinstance(content, bytes):
            target.write_bytes(content)
        else:
            shutil.copyfile(content, target)
        records[name] = FileRecord(_file_sha256(target), target.stat().st_size)
    for name in (MODEL_NAME, TOKENIZER_NAME):
        if name not in records:
            raise CorruptFile("a bundle lacks a file", path=part, expected=name)
    identity = encoder_identity(settings, records[TOKENIZER_NAME].sha256)
    manifest = {
        "format": BUNDLE_FORMAT,
        "identity": identity,
        **asdict(settings),
        "files": {name: asdict(record) for name, record in records.items()},
    }
    text = json.dumps(manifest, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    (part / MANIFEST_NAME).write_bytes(text.encode("utf-8"))


def _file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_size(path: Path, record: FileRecord) -> None:
    """Refuse a file that is missing, no regular file (links included) or of another size."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        raise CorruptFile("a file of the bundle is missing", path=path) from None
    if not stat.S_ISREG(status.st_mode):
        kind = stat.filemode(status.st_mode)
        raise CorruptFile(
            "not a regular file; a bundle holds no links", path=path, expected="-rw-r--r--", actual=kind
        )
    if status.st_size != record.n_bytes:
        raise TruncatedFile(
            "the file has another size than the manifest says",
            path=path,
            expected=f"{record.n_bytes} bytes",
            actual=f"{status.st_size} bytes",
        )


def _bundle_from(fields: JsonFields, folder: Path) -> EncoderBundle:
    version = fields.integer("format", 1, 2**31)
    if version > BUNDLE_FORMAT:
        raise FormatTooNew(
            "a later version of Quarry wrote this bundle", path=folder, expected=BUNDLE_FORMAT, actual=version
        )
    identity = fields.text("identity", _IDENTITY)
    files = _files_from(fields.inner("files"))
    settings = _settings_from(fields)
    computed = encoder_identity(settings, files[TOKENIZER_NAME].sha256)
    if identity != computed:
        raise CorruptFile(
            "the identity does not follow from the manifest", path=folder, expected=computed, actual=identity
        )
    return EncoderBundle(folder, identity, settings, files)


def _settings_from(fields: JsonFields) -> EncoderSettings:
    settings = EncoderSettings(
        name=fields.text("name"),
        precision=fields.text("precision", _PRECISION),
        dim=fields.integer("dim", 1, _MAX_DIM),
        window=fields.integer("window", 3, _MAX_WINDOW),
        pooling=cast("Pooling", fields.text("pooling", re.compile("mean|cls"))),
        normalise=fields.flag("normalise"),
        query_prefix=fields.text("query_prefix"),
        document_prefix=fields.text("document_prefix"),
        beta=None if fields.take_null("beta") else fields.number("beta", math.ulp(0.0), 1e6),
        trained_representation=(
            None if fields.take_null("trained_representation") else fields.text("trained_representation")
        ),
        source=_source_from(fields.inner("source")),
        licence=fields.text("licence"),
        parity=None if fields.take_null("parity") else _parity_from(fields.inner("parity")),
    )
    fields.done()
    return settings


def _source_from(fields: JsonFields) -> SourceRecord:
    source = SourceRecord(fields.text("file", _FILE_NAME), fields.text("sha256", _SHA256))
    fields.done()
    return source


def _parity_from(fields: JsonFields) -> ParityRecord:
    cosines = ("token_mean", "token_min", "pooled_mean", "pooled_min")
    record = ParityRecord(
        fields.integer("n_texts", 1, 2**31), *(fields.number(name, -1.0, 1.0) for name in cosines)
    )
    fields.done()
    return record


def _files_from(fields: JsonFields) -> dict[str, FileRecord]:
    names = fields.names()
    bad = [name for name in names if not _FILE_NAME.fullmatch(name) or name == MANIFEST_NAME]
    missing = [name for name in (MODEL_NAME, TOKENIZER_NAME) if name not in names]
    if bad or missing or len(names) > _MAX_FILES:
        raise CorruptFile(
            "bad list of files in the manifest",
            path=fields.path,
            expected=f"plain names, {MODEL_NAME} and {TOKENIZER_NAME} among them, at most {_MAX_FILES}",
            actual=repr(sorted(names))[:200],
        )
    return {name: _file_from(fields.inner(name)) for name in names}


def _file_from(fields: JsonFields) -> FileRecord:
    record = FileRecord(fields.text("sha256", _SHA256), fields.integer("n_bytes", 0, _MAX_FILE_BYTES))
    fields.done()
    return record
