"""TensorRT engines ("plans") of an encoder bundle: built by one version of the library for one kind of GPU.

Each is a pair of files in the bundle's folder, named by library, GPU and precision::

    tensorrt-11.4.0.106-sm90-fp16.plan   native code and weights, as the library serialized them
    tensorrt-11.4.0.106-sm90-fp16.json   the settings of the build, with the plan's size and SHA-256

A plan is derived from the bundle's graph and can be rebuilt at any time, so the manifest of the bundle does not
list it. Loading a plan runs code in it: only a plan with the recorded digest is loaded, and only from a folder
that the user chose.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from quarry.formats.bundle.folder import MAX_WINDOW, PRECISION, FileDigest, replace_file
from quarry.formats.container.fields import Fields, read_json
from quarry.formats.errors import ChecksumMismatch, CorruptFile, TruncatedFile
from quarry.formats.system_errors import mode_at, system_errors

__all__ = ["LIBRARIES", "PlanProfile", "PlanRecord", "digest_plan", "read_plans", "write_plan"]

LIBRARIES: Final = ("tensorrt", "tensorrt-rtx")

_FORMAT: Final = 1
_MAX_RECORD_BYTES: Final = 16 * 1024
_MAX_PLAN_BYTES: Final = 2**36
_MAX_BATCH: Final = 2**16  # texts
_MAX_PROFILES: Final = 16  # of shapes in an engine
_LIBRARY: Final = re.compile("|".join(LIBRARIES))
_VERSION: Final = re.compile(r"\d{1,4}(\.\d{1,6}){1,4}")
_TARGET: Final = re.compile(r"sm\d{2,3}")
_DIGITS: Final = re.compile(r"[0-9a-f]{32}([0-9a-f]{32})?")
_NAME: Final = re.compile(rf"({_LIBRARY.pattern})-{_VERSION.pattern}-{_TARGET.pattern}-[a-z0-9]+\.json")

_SHAPES: Final = ("smallest", "usual", "largest")

Shape = tuple[int, int]


@dataclass(frozen=True, slots=True)
class PlanProfile:
    """A range of input shapes of a plan; each shape is (batch, length).

    Attributes:
        smallest: minimum of both.
        usual: the shape that the plan was optimized for.
        largest: maximum of both.
    """

    smallest: Shape
    usual: Shape
    largest: Shape

    def accepts(self, shape: Shape) -> bool:
        """Return whether an input of this shape can be run."""
        return all(
            low <= extent <= high for low, extent, high in zip(self.smallest, shape, self.largest, strict=True)
        )


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """The settings of a plan.

    Attributes:
        identity: the identity of the encoder, 32 hexadecimal digits.
        model_sha256: the SHA-256 of the graph it was built from.
        library: "tensorrt" or "tensorrt-rtx".
        version: the version of that library, e.g. "11.4.0.106".
        target: compute capability of the GPU, e.g. "sm90".
        precision: the precision of the graph, e.g. "fp16".
        profiles: input shapes, in the order of the profiles in the plan.
        file: size and digest of the plan.
    """

    identity: str
    model_sha256: str
    library: str
    version: str
    target: str
    precision: str
    profiles: tuple[PlanProfile, ...]
    file: FileDigest

    @property
    def stem(self) -> str:
        """The name of both files without suffix."""
        return f"{self.library}-{self.version}-{self.target}-{self.precision}"

    def load(self, folder: Path) -> bytes:
        """Read the plan and check its digest.

        Raises:
            ChecksumMismatch: the digest differs from the recorded one.
            CorruptFile: it is missing or not a regular file.
            TruncatedFile: it has another size.
        """
        path = folder / f"{self.stem}.plan"
        if path.is_symlink() or not stat.S_ISREG(mode_at(path)):
            raise CorruptFile("a plan is missing or not a regular file", path=path)
        with system_errors("read", path):
            n_bytes = path.stat().st_size
            if n_bytes != self.file.n_bytes:
                raise TruncatedFile("wrong size of a plan", path=path, expected=self.file.n_bytes, actual=n_bytes)
            plan = path.read_bytes()
        digest = digest_plan(plan)
        if digest != self.file:
            raise ChecksumMismatch(
                "the SHA-256 of the plan differs from its record",
                path=path,
                expected=self.file.sha256,
                actual=digest.sha256,
            )
        return plan


def write_plan(folder: Path, record: PlanRecord, plan: bytes | memoryview) -> None:
    """Write a plan to a bundle's folder, and replace one of the same name.

    The plan is written first; until its record is written, the digest in the old record does not match it.
    """
    replace_file(folder / f"{record.stem}.plan", plan)
    text = json.dumps(_to_members(record), indent=2) + "\n"
    replace_file(folder / f"{record.stem}.json", text.encode("ascii"))


def read_plans(folder: Path) -> list[PlanRecord]:
    """Read the records of all plans in a bundle's folder, sorted by name.

    Raises:
        CorruptFile: a record is not valid, or its name does not match its content.
        FormatTooNew: a later version wrote it.
        AccessFailed: the folder or a record cannot be read.
    """
    with system_errors("listed", folder):
        names = sorted(filter(_NAME.fullmatch, os.listdir(folder)))  # noqa: PTH208
    return [_read_record(folder / name) for name in names]


def digest_plan(plan: bytes | memoryview) -> FileDigest:
    """Return SHA-256 and size of a plan in memory."""
    return FileDigest(hashlib.sha256(plan).hexdigest(), memoryview(plan).nbytes)


def _read_record(path: Path) -> PlanRecord:
    fields = Fields.from_json(read_json(path, _MAX_RECORD_BYTES), path)
    fields.check_format(_FORMAT, "plan")
    record = PlanRecord(
        identity=fields.text("identity", pattern=_DIGITS),
        model_sha256=fields.text("model_sha256", pattern=_DIGITS),
        library=fields.text("library", pattern=_LIBRARY),
        version=fields.text("version", pattern=_VERSION),
        target=fields.text("target", pattern=_TARGET),
        precision=fields.text("precision", pattern=PRECISION),
        profiles=_parse_profiles(fields),
        file=_parse_file(fields.child("file")),
    )
    fields.refuse_unknown()
    if path.name != f"{record.stem}.json":
        raise CorruptFile(
            "the name of a record does not match its content", path=path, expected=f"{record.stem}.json"
        )
    return record


def _to_members(record: PlanRecord) -> dict[str, object]:
    profiles = {
        str(number): {
            f"{name}_{axis}": extent
            for name in _SHAPES
            for axis, extent in zip(("batch", "length"), getattr(profile, name), strict=True)
        }
        for number, profile in enumerate(record.profiles)
    }
    texts = ("identity", "model_sha256", "library", "version", "target", "precision")
    file = {"sha256": record.file.sha256, "n_bytes": record.file.n_bytes}
    return (
        {"format": _FORMAT}
        | {name: getattr(record, name) for name in texts}
        | {"profiles": profiles, "file": file}
    )


def _parse_profiles(fields: Fields) -> tuple[PlanProfile, ...]:
    inner = fields.child("profiles")
    names = inner.names()
    if not 1 <= len(names) <= _MAX_PROFILES or names != [str(number) for number in range(len(names))]:
        raise CorruptFile("a plan's profiles are not numbered from 0", path=fields.path, actual=repr(names)[:200])
    return tuple(_parse_profile(inner.child(name)) for name in names)


def _parse_profile(fields: Fields) -> PlanProfile:
    shapes = [
        (fields.integer(f"{name}_batch", 1, _MAX_BATCH), fields.integer(f"{name}_length", 1, MAX_WINDOW))
        for name in _SHAPES
    ]
    fields.refuse_unknown()
    profile = PlanProfile(*shapes)
    if not profile.accepts(profile.usual):
        raise CorruptFile("a plan's usual shape is outside its bounds", path=fields.path, actual=shapes)
    return profile


def _parse_file(fields: Fields) -> FileDigest:
    record = FileDigest(fields.text("sha256", pattern=_DIGITS), fields.integer("n_bytes", 1, _MAX_PLAN_BYTES))
    fields.refuse_unknown()
    return record
