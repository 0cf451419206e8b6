"""The folder of an exported model: a manifest, an ONNX graph, its tokenizer, licenses.

::

    <name>/
    ├── bundle.json       the manifest, UTF-8 JSON
    ├── model.onnx        the graph; its external weights, if any, are in model.onnx.data
    ├── query_model.onnx  the graph for queries, if an encoder has a separate network for them
    ├── tokenizer.json    tokenizer, in the format of the tokenizers library
    ├── reference.json    vectors or scores of a few texts from before the conversion, to check the bundle
    └── LICENSE, NOTICE   and other files that the manifest lists under "files"

A bundle contains an encoder (`quarry.formats.bundle.encoder`) or a reranker (`quarry.formats.bundle.reranker`),
as the member ``kind`` of the manifest states; without that member it is an encoder. Bundles are not trusted: the
manifest has a strict schema and lists every file with its size and SHA-256, and files are regular files in the
folder itself.
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
from typing import Final, Generic, Literal, TypeVar

from quarry.formats.bundle.onnx_check import MAX_GRAPH_BYTES, check_graph
from quarry.formats.container.directory import retry_busy
from quarry.formats.container.fields import Fields, read_json
from quarry.formats.errors import ChecksumMismatch, CorruptFile, InvalidSetting, TruncatedFile
from quarry.formats.system_errors import checked_path, mode_at, system_errors

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
    "BundleType",
    "FileDigest",
    "SourceRecord",
    "add_bundle_file",
    "compute_identity",
    "file_sha256",
    "read_bundle_kind",
    "read_source",
    "replace_file",
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
_MAX_TOKENIZER_BYTES: Final = 2**27  # four times the largest known
_MAX_BYTES: Final = {
    TOKENIZER_NAME: _MAX_TOKENIZER_BYTES,
    MODEL_NAME: MAX_GRAPH_BYTES,
    QUERY_MODEL_NAME: MAX_GRAPH_BYTES,
}
_MAX_FILES: Final = 32  # of a bundle

_FILE_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
SHA256: Final = re.compile(r"[0-9a-f]{64}")
_IDENTITY: Final = re.compile(r"[0-9a-f]{32}")
_KIND: Final = re.compile(r"[a-z]{1,16}")

BundleKind = Literal["encoder", "reranker"]
SettingsT = TypeVar("SettingsT")
BundleT = TypeVar("BundleT", bound="BundleFolder")


@dataclass(frozen=True, slots=True)
class FileDigest:
    """Size and digest of a file, as recorded in a manifest.

    Attributes:
        sha256: 64 lower-case hexadecimal digits.
        n_bytes: size of the file.
    """

    sha256: str
    n_bytes: int


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """The file of trained weights that the graph was built from.

    Attributes:
        file: its name, without a folder.
        sha256: 64 lower-case hexadecimal digits.
    """

    file: str
    sha256: str


@dataclass(frozen=True, slots=True)
class BundleFolder:
    """The part that all bundles have in common.

    Attributes:
        path: the folder.
        identity: 32 hexadecimal digits; the same for all precisions of a model.
        files: all files of the bundle except the manifest, by name.
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

    def check(self, computed: str) -> None:
        """Check that the identity is the one computed from the manifest, and the kind and size of each file.

        Raises:
            CorruptFile: the identities differ, or a file is missing or is not a regular file (links included).
            TruncatedFile: a file has another size.
        """
        if self.identity != computed:
            raise CorruptFile(
                "the identity does not match the manifest",
                path=self.path,
                expected=computed,
                actual=self.identity,
            )
        for name, record in self.files.items():
            _check_size(self.path / name, record)

    def verify_files(self, names: Iterable[str] | None = None) -> int:
        """Read files and compare their SHA-256 with the manifest.

        Args:
            names: which of `files`; None for all.

        Returns:
            The number of bytes read.

        Raises:
            ChecksumMismatch: a file's SHA-256 is not the recorded one.
            CorruptFile: a file is missing or is not a regular file.
            TruncatedFile: a file has another size than recorded.
        """
        chosen = list(self.files if names is None else names)
        for name in chosen:
            _verify_file(self.path / name, self.files[name])
        return sum(self.files[name].n_bytes for name in chosen)

    def verify_graph(self, name: str) -> None:
        """Check a graph before a runtime loads it: digests, locations of weights, operators.

        Args:
            name: which of `files`.

        Raises:
            ChecksumMismatch, TruncatedFile: see `verify_files`, for the graph and the file with its weights.
            CorruptFile: see `verify_files` and `quarry.formats.bundle.onnx_check.check_graph`.
        """
        data = [name + DATA_SUFFIX] if name + DATA_SUFFIX in self.files else []
        self.verify_files([name, *data])
        check_graph(self.path / name, {each: self.files[each].n_bytes for each in data})


def file_sha256(*paths: Path) -> str:
    """Return the SHA-256 of one file, or of several joined, as 64 lower-case hexadecimal digits.

    Raises:
        FileNotFoundError: a file is missing.
        AccessFailed: a file cannot be read.
    """
    state = hashlib.sha256()
    for path in paths:
        with system_errors("read", path), path.open("rb") as file:
            hashlib.file_digest(file, lambda: state)
    return state.hexdigest()


def compute_identity(parts: Mapping[str, object]) -> str:
    """Return the first 32 hexadecimal digits of the SHA-256 of `parts` as JSON: sorted keys, no spaces, ASCII."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:32]


def read_bundle_kind(path: str | Path) -> str:
    """Return the kind of the bundle at a path, "encoder" or "reranker"; reads the manifest only.

    Raises:
        InvalidSetting: there is no bundle at the path.
        CorruptFile: the manifest is not valid.
    """
    return _take_kind(_read_manifest_fields(Path(path), "bundle"))


@dataclass(frozen=True)
class BundleType(Generic[SettingsT, BundleT]):
    """Functions that read and write bundles of one kind.

    Attributes:
        kind: stated by their manifests.
        make: makes a bundle of path, identity, files and settings.
        parse: takes the settings from the members of a manifest.
        members: returns the members of a manifest for settings.
        identify: computes the identity from settings and the tokenizer's SHA-256.
    """

    kind: BundleKind
    make: Callable[[Path, str, Mapping[str, FileDigest], SettingsT], BundleT]
    parse: Callable[[Fields], SettingsT]
    members: Callable[[SettingsT], Mapping[str, object]]
    identify: Callable[[SettingsT, str], str]

    def load(self, path: str | Path) -> BundleT:
        """Read and check the manifest of a bundle; sizes of files are checked, contents by `verify_files`.

        Raises:
            InvalidSetting: there is no bundle at the path, or one of another kind.
            FormatTooNew: a later version wrote it.
            CorruptFile: the manifest is not valid, or a file is missing or a link.
            TruncatedFile: a file has another size than in the manifest.
            AccessFailed: a file cannot be read.
        """
        # Files are read later, perhaps from another working directory.
        folder = checked_path(path, "path").absolute()
        fields = _read_manifest_fields(folder, f"{self.kind} bundle")
        fields.check_format(BUNDLE_FORMAT, "bundle")
        kind = _take_kind(fields)
        if kind != self.kind:
            raise InvalidSetting(
                f"the bundle contains no {self.kind}",
                path=folder,
                expected=f"kind {self.kind}",
                actual=f"kind {kind}",
            )
        identity = fields.text("identity", pattern=_IDENTITY)
        files = _parse_files(fields.child("files"))
        settings = self.parse(fields)
        bundle = self.make(folder, identity, files, settings)
        bundle.check(self.identify(settings, files[TOKENIZER_NAME].sha256))
        return bundle

    def write(self, path: str | Path, settings: SettingsT, files: Mapping[str, bytes | Path]) -> BundleT:
        """Write a bundle to a new folder: first under a temporary name, which is then renamed.

        Args:
            path: the new folder.
            settings: for the manifest.
            files: contents, or files to copy, by name; ``model.onnx`` and ``tokenizer.json`` among them.

        Returns:
            The bundle, read back.

        Raises:
            InvalidSetting: the folder exists already.
            CorruptFile: settings or file names are not valid; nothing is left behind.
            OSError: an I/O error occurred; nothing is left behind.
        """
        folder = Path(path)
        if folder.exists():
            raise InvalidSetting("the path exists already; a bundle needs a new folder", path=folder)
        part = folder.with_name(f".{folder.name}.{secrets.token_hex(8)}.part")
        part.mkdir(parents=True)
        try:
            records = _write_files(part, files)
            identity = self.identify(settings, records[TOKENIZER_NAME].sha256)
            _write_manifest(part, self.members(settings), identity, records)
            self.load(part)
            retry_busy(lambda: part.rename(folder))
        except BaseException as error:
            shutil.rmtree(part, ignore_errors=True)
            if isinstance(error, OSError) and error.filename is None:  # for example if the disk is full
                error.filename = str(folder)
            raise
        return self.load(folder)


def add_bundle_file(path: Path, name: str, content: bytes) -> None:
    """Add a file to a bundle, or replace one; the manifest is replaced last, by a rename.

    If this is interrupted when a file is replaced, the digest of that file may be wrong until it is done again.

    Args:
        path: folder of the bundle.
        name: the name of the file, neither that of a graph nor of the tokenizer.
        content: the content of the file.

    Raises:
        InvalidSetting: there is no bundle at the path, or the name is that of a file which cannot be replaced.
        CorruptFile: the manifest is not valid.
    """
    if not _FILE_NAME.fullmatch(name) or name in (MANIFEST_NAME, MODEL_NAME, QUERY_MODEL_NAME, TOKENIZER_NAME):
        raise InvalidSetting("a file of this name cannot be added to a bundle", path=path, actual=name)
    members = _read_manifest_fields(path, "bundle").remaining()
    records = _parse_files(Fields.from_json(members["files"], path / MANIFEST_NAME))
    records[name] = FileDigest(hashlib.sha256(content).hexdigest(), len(content))
    members["files"] = {each: asdict(record) for each, record in sorted(records.items())}
    for target, data in ((name, content), (MANIFEST_NAME, _manifest_bytes(members))):
        replace_file(path / target, data)


def replace_file(path: Path, content: bytes | memoryview) -> None:
    """Write a file of a bundle in one step, in the place of one that exists."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
    try:
        part.write_bytes(content)
        retry_busy(lambda: part.replace(path))
    finally:
        part.unlink(missing_ok=True)


def read_source(fields: Fields) -> SourceRecord:
    """Take the members of a `SourceRecord`.

    Raises:
        CorruptFile: a member is not valid.
    """
    source = SourceRecord(fields.text("file", pattern=_FILE_NAME), fields.text("sha256", pattern=SHA256))
    fields.refuse_unknown()
    return source


def _read_manifest_fields(folder: Path, wanted: str) -> Fields:
    path = folder / MANIFEST_NAME
    if not stat.S_ISREG(mode_at(path)):
        raise InvalidSetting(f"there is no {wanted}", path=folder, expected=MANIFEST_NAME)
    return Fields.from_json(read_json(path, _MAX_MANIFEST_BYTES), path)


def _take_kind(fields: Fields) -> str:
    """Take the kind of a manifest; manifests of encoders have none."""
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
    (part / MANIFEST_NAME).write_bytes(_manifest_bytes(manifest))


def _manifest_bytes(manifest: Mapping[str, object]) -> bytes:
    return (json.dumps(manifest, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode("utf-8")


def _parse_files(fields: Fields) -> dict[str, FileDigest]:
    names = fields.names()
    bad = [name for name in names if not _FILE_NAME.fullmatch(name) or name == MANIFEST_NAME]
    missing = [name for name in (MODEL_NAME, TOKENIZER_NAME) if name not in names]
    if bad or missing or len(names) > _MAX_FILES:
        raise CorruptFile(
            "invalid list of files in the manifest",
            path=fields.path,
            expected=f"plain names, {MODEL_NAME} and {TOKENIZER_NAME} among them, at most {_MAX_FILES}",
            actual=repr(sorted(names))[:200],
        )
    return {name: _parse_file(fields.child(name), _MAX_BYTES.get(name, _MAX_FILE_BYTES)) for name in names}


def _parse_file(fields: Fields, max_bytes: int) -> FileDigest:
    record = FileDigest(fields.text("sha256", pattern=SHA256), fields.integer("n_bytes", 0, max_bytes))
    fields.refuse_unknown()
    return record


def _check_size(path: Path, record: FileDigest) -> None:
    """Check that a file is a regular file of the recorded size; see `BundleFolder.check`."""
    try:
        with system_errors("looked up", path):
            status = path.lstat()
    except FileNotFoundError:
        raise CorruptFile("a file of the bundle is missing", path=path) from None
    if not stat.S_ISREG(status.st_mode):
        kind = stat.filemode(status.st_mode)
        raise CorruptFile(
            "not a regular file; links are not allowed in bundles", path=path, expected="-rw-r--r--", actual=kind
        )
    if status.st_size != record.n_bytes:
        raise TruncatedFile(
            "the file has another size than in the manifest",
            path=path,
            expected=f"{record.n_bytes} bytes",
            actual=f"{status.st_size} bytes",
        )


def _verify_file(path: Path, record: FileDigest) -> None:
    """Read a file and compare it with its record; see `BundleFolder.verify_files`."""
    _check_size(path, record)
    try:
        actual = file_sha256(path)
    except FileNotFoundError:  # deleted after the check
        raise CorruptFile("a file of the bundle is missing", path=path) from None
    if actual != record.sha256:
        raise ChecksumMismatch(
            "the SHA-256 of the file differs from the manifest", path=path, expected=record.sha256, actual=actual
        )
