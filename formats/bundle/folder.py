"""The folder of an exported model: a manifest, an ONNX graph, its tokenizer, licences.

::

    <name>/
    ├── bundle.json       the manifest, UTF-8 JSON
    ├── model.onnx        what to run; weights it keeps outside are in model.onnx.data
    ├── query_model.onnx  the same for queries, where an encoder has a network of its own for them
    ├── tokenizer.json    text -> token ids, as the tokenizers library reads it
    ├── reference.json    vectors or scores of a few texts before the conversion, to check the bundle by
    └── LICENSE, NOTICE   and whatever else the manifest lists under "files"

A bundle holds an encoder (`quarry.formats.bundle.encoder`) or a reranker (`quarry.formats.bundle.reranker`). The
manifest's member ``kind`` says which; without one it is an encoder. Nothing in a bundle is trusted: the manifest
has a strict
schema, every file is named in it with its size and SHA-256, and names are plain names of regular files in the
folder.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Literal

from quarry.formats.bundle.onnx_check import MAX_GRAPH_BYTES, check_graph
from quarry.formats.container.fields import Fields, read_json
from quarry.formats.errors import ChecksumMismatch, CorruptFile, FormatTooNew, InvalidSetting, TruncatedFile

__all__ = [
    "BUNDLE_FORMAT",
    "DATA_SUFFIX",
    "MANIFEST_NAME",
    "MAX_WINDOW",
    "MODEL_NAME",
    "PRECISION",
    "QUERY_MODEL_NAME",
    "REFERENCE_NAME",
    "SHA256",
    "TOKENIZER_NAME",
    "BundleFolder",
    "BundleKind",
    "FileDigest",
    "SourceRecord",
    "bundle_kind",
    "file_sha256",
    "identity_of",
    "read_manifest",
    "source_from",
    "write_folder",
]

BUNDLE_FORMAT: Final = 1
MANIFEST_NAME: Final = "bundle.json"
MODEL_NAME: Final = "model.onnx"
QUERY_MODEL_NAME: Final = "query_model.onnx"
DATA_SUFFIX: Final = ".data"
REFERENCE_NAME: Final = "reference.json"
TOKENIZER_NAME: Final = "tokenizer.json"

MAX_WINDOW: Final = 2**20
PRECISION: Final = re.compile(r"[a-z][a-z0-9]{0,15}(-[a-z0-9]{1,15})?")

_MAX_MANIFEST_BYTES: Final = 64 * 1024
_MAX_FILE_BYTES: Final = 2**36
_MAX_TOKENIZER_BYTES: Final = 2**27  # the largest known have a quarter; its library reads it whole
_MAX_BYTES: Final = {
    TOKENIZER_NAME: _MAX_TOKENIZER_BYTES,
    MODEL_NAME: MAX_GRAPH_BYTES,
    QUERY_MODEL_NAME: MAX_GRAPH_BYTES,
}
_MAX_FILES: Final = 32

_FILE_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
SHA256: Final = re.compile(r"[0-9a-f]{64}")
_IDENTITY: Final = re.compile(r"[0-9a-f]{32}")
_KIND: Final = re.compile(r"[a-z]{1,16}")

BundleKind = Literal["encoder", "reranker"]


@dataclass(frozen=True, slots=True)
class FileDigest:
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
class BundleFolder:
    """What all bundles have in common; a loader has checked it against the manifest and the files' sizes.

    Attributes:
        path: the folder.
        identity: 32 hexadecimal digits; the same for all precisions of a model.
        files: every file of the bundle but the manifest, by name.
    """

    path: Path
    identity: str
    files: Mapping[str, FileDigest]

    @property
    def model_path(self) -> Path:
        """The ONNX graph."""
        return self.path / MODEL_NAME

    @property
    def tokenizer_path(self) -> Path:
        """The tokenizer."""
        return self.path / TOKENIZER_NAME

    def check_identity(self, computed: str) -> None:
        """Refuse a manifest whose identity is not the one computed from its members.

        Raises:
            CorruptFile: it is another.
        """
        if self.identity != computed:
            raise CorruptFile(
                "the identity does not follow from the manifest",
                path=self.path,
                expected=computed,
                actual=self.identity,
            )

    def check_sizes(self) -> None:
        """Refuse files that are not what the manifest says at first sight.

        Raises:
            CorruptFile: a file is missing or is not a regular file (links included).
            TruncatedFile: a file has another size.
        """
        for name, record in self.files.items():
            _check_size(self.path / name, record)

    def verify_files(self, names: Iterable[str] | None = None) -> int:
        """Read files whole and compare their SHA-256 with the manifest.

        Args:
            names: which of `files`; None for all.

        Returns:
            The number of bytes read.

        Raises:
            ChecksumMismatch: a file's SHA-256 is not the recorded one.
            CorruptFile: a file is gone or is not a regular file.
            TruncatedFile: a file has another size than recorded.
        """
        chosen = list(self.files if names is None else names)
        for name in chosen:
            _verify_file(self.path / name, self.files[name])
        return sum(self.files[name].n_bytes for name in chosen)

    def verify_graph(self, name: str) -> None:
        """Check a graph before a runtime loads it: digests, where its weights lie, its operators.

        Args:
            name: which of `files`.

        Raises:
            ChecksumMismatch, TruncatedFile: as of `verify_files`, for the graph and the file with its weights.
            CorruptFile: as there, or the graph has what `quarry.formats.bundle.onnx_check.check_graph` refuses.
        """
        data = [name + DATA_SUFFIX] if name + DATA_SUFFIX in self.files else []
        self.verify_files([name, *data])
        check_graph(self.path / name, {each: self.files[each].n_bytes for each in data})


def file_sha256(*paths: Path) -> str:
    """Return the SHA-256 of one file, or of several joined, as 64 lower-case hexadecimal digits."""
    state = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            hashlib.file_digest(file, lambda: state)
    return state.hexdigest()


def identity_of(parts: Mapping[str, object]) -> str:
    """The first 32 hexadecimal digits of the SHA-256 of `parts` as JSON: keys sorted, no spaces, ASCII."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:32]


def read_manifest(path: str | Path, kind: BundleKind) -> tuple[BundleFolder, Fields]:
    """Read the manifest of a bundle of one kind, and check what all kinds have in common.

    Returns:
        The folder, and the members of the manifest that are left: the settings of this kind.

    Raises:
        InvalidSetting: there is no bundle at the path, or one of another kind.
        FormatTooNew: a later version wrote it.
        CorruptFile: the manifest breaks its schema.
    """
    folder = Path(path).absolute()  # its files are read later, when the process may be in another folder
    fields = _manifest_fields(folder, f"{kind} bundle")
    version = fields.integer("format", 1, 2**31)
    if version > BUNDLE_FORMAT:
        raise FormatTooNew(
            "a later version of Quarry wrote this bundle", path=folder, expected=BUNDLE_FORMAT, actual=version
        )
    found = _kind_in(fields)
    if found != kind:
        raise InvalidSetting(
            f"the bundle holds no {kind}", path=folder, expected=f"kind {kind}", actual=f"kind {found}"
        )
    identity = fields.text("identity", pattern=_IDENTITY)
    return BundleFolder(folder, identity, _files_from(fields.child("files"))), fields


def bundle_kind(path: str | Path) -> str:
    """Tell what the bundle at a path holds, "encoder" or "reranker", by its manifest alone.

    Raises:
        InvalidSetting: there is no bundle at the path.
        CorruptFile: its manifest is none.
    """
    return _kind_in(_manifest_fields(Path(path), "bundle"))


def write_folder(
    path: str | Path,
    members: Mapping[str, object],
    identity_for: Callable[[str], str],
    files: Mapping[str, bytes | Path],
    load: Callable[[Path], object],
) -> None:
    """Write a bundle into a new folder: in full beside it first, then moved to its name.

    Args:
        path: the folder to make.
        members: of the manifest, beside ``format``, ``identity`` and ``files``.
        identity_for: computes the identity from the tokenizer's SHA-256.
        files: contents, or files to copy, by name; ``model.onnx`` and ``tokenizer.json`` among them.
        load: reads a bundle of this kind, and refuses what a reader would.

    Raises:
        InvalidSetting: the folder exists already.
        CorruptFile: members or names that a reader would refuse; nothing is left behind then.
        OSError: it cannot be written, and names the folder; likewise.
    """
    folder = Path(path)
    if folder.exists():
        raise InvalidSetting("there is something at the path already; a bundle needs a new folder", path=folder)
    part = folder.with_name(f".{folder.name}.{secrets.token_hex(8)}.part")
    part.mkdir(parents=True)
    try:
        records = _write_files(part, files)
        identity = identity_for(records[TOKENIZER_NAME].sha256)
        _write_manifest(part, members, identity, records)
        load(part)
        part.rename(folder)
    except BaseException as error:
        shutil.rmtree(part, ignore_errors=True)
        if isinstance(error, OSError) and error.filename is None:  # of a write, where the disk is full
            error.filename = str(folder)
        raise


def source_from(fields: Fields) -> SourceRecord:
    """Take the members of a `SourceRecord`.

    Raises:
        CorruptFile: a member is not what it should be.
    """
    source = SourceRecord(fields.text("file", pattern=_FILE_NAME), fields.text("sha256", pattern=SHA256))
    fields.refuse_unknown()
    return source


def _manifest_fields(folder: Path, wanted: str) -> Fields:
    path = folder / MANIFEST_NAME
    if not path.is_file():
        raise InvalidSetting(f"there is no {wanted}", path=folder, expected=MANIFEST_NAME)
    return Fields.from_json(read_json(path, _MAX_MANIFEST_BYTES), path)


def _kind_in(fields: Fields) -> str:
    """Take the kind out of a manifest; those of encoders have none."""
    return fields.text("kind", pattern=_KIND) if fields.has("kind") else "encoder"


def _write_files(part: Path, files: Mapping[str, bytes | Path]) -> dict[str, FileDigest]:
    records = {}
    for name, content in sorted(files.items()):
        if not _FILE_NAME.fullmatch(name):
            raise CorruptFile("not a plain file name", path=part, actual=name)
        target = part / name
        if isinstance(content, bytes):
            target.write_bytes(content)
        else:
            shutil.copyfile(content, target)
        records[name] = FileDigest(file_sha256(target), target.stat().st_size)
    for name in (MODEL_NAME, TOKENIZER_NAME):
        if name not in records:
            raise CorruptFile("a bundle lacks a file", path=part, expected=name)
    return records


def _write_manifest(
    part: Path, members: Mapping[str, object], identity: str, records: Mapping[str, FileDigest]
) -> None:
    manifest = {
        "format": BUNDLE_FORMAT,
        "identity": identity,
        **members,
        "files": {name: asdict(record) for name, record in records.items()},
    }
    text = json.dumps(manifest, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    (part / MANIFEST_NAME).write_bytes(text.encode("utf-8"))


def _files_from(fields: Fields) -> dict[str, FileDigest]:
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
    return {name: _file_from(fields.child(name), _MAX_BYTES.get(name, _MAX_FILE_BYTES)) for name in names}


def _file_from(fields: Fields, max_bytes: int) -> FileDigest:
    record = FileDigest(fields.text("sha256", pattern=SHA256), fields.integer("n_bytes", 0, max_bytes))
    fields.refuse_unknown()
    return record


def _check_size(path: Path, record: FileDigest) -> None:
    """Refuse a file that is not what its record says at first sight.

    Raises:
        CorruptFile: it is missing or is no regular file (links included).
        TruncatedFile: it has another size.
    """
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


def _verify_file(path: Path, record: FileDigest) -> None:
    """Read a file and compare it with its record.

    Args:
        path: the file.
        record: what it should be.

    Raises:
        ChecksumMismatch: its SHA-256 is another.
        CorruptFile, TruncatedFile: as of `_check_size`.
    """
    _check_size(path, record)
    actual = file_sha256(path)
    if actual != record.sha256:
        raise ChecksumMismatch(
            "the file is not the one the manifest names", path=path, expected=record.sha256, actual=actual
        )
