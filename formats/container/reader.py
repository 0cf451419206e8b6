"""Opens a container file: verifies its frame and gives access to its fields and sections."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from quarry.formats.container.directory import Directory, HeldFile, MappedFile
from quarry.formats.container.fields import Fields
from quarry.formats.container.layout import (
    FOOTER_BYTES,
    KNOWN_OPTIONAL_FEATURES,
    KNOWN_WRITER_FEATURES,
    MAX_MANIFEST_BYTES,
    PREAMBLE_BYTES,
    FileKind,
    FileRecord,
    check_preamble,
    check_record,
    read_footer,
)
from quarry.formats.container.packing import unpack
from quarry.formats.container.sections import Section, digest, read_sections
from quarry.formats.errors import ChecksumMismatch, CorruptFile, FormatError, TruncatedFile

__all__ = ["ContainerReader"]


class ContainerReader:
    """A file opened for reading: preamble, table of contents and footer are verified.

    Args:
        directory: where.
        name: the file's name.
        kind: what it must hold.
        record: what the manifest says of it, where there is one.

    Attributes:
        unknown_writer_features: bits of features that a writer of the index must know and this version does not.
        optional_features: bits of those that anyone may ignore.

    Raises:
        FileNotFoundError: it is not there.
        FormatError: it is not what it should be.
    """

    def __init__(self, directory: Directory, name: str, kind: FileKind, record: FileRecord | None = None) -> None:
        self.path = directory.path / name
        self._file: MappedFile | HeldFile = (
            directory.hold(name, MAX_MANIFEST_BYTES) if kind == FileKind.MANIFEST else directory.map(name)
        )
        self._sections: dict[str, Section] = {}
        self._asked: set[str] = set()
        try:
            self._read(kind, record)
        except BaseException:
            self.close()
            raise

    def _read(self, kind: FileKind, record: FileRecord | None) -> None:
        data = self._file.data
        if len(data) < PREAMBLE_BYTES + FOOTER_BYTES:
            raise TruncatedFile("too short for any file of an index", path=self.path, actual=f"{len(data)} bytes")
        file_id, writer_features, self.optional_features = check_preamble(data[:PREAMBLE_BYTES], kind, self.path)
        self.unknown_writer_features = writer_features & ~KNOWN_WRITER_FEATURES
        self._has_more = bool(self.unknown_writer_features or self.optional_features & ~KNOWN_OPTIONAL_FEATURES)
        self.record, self._contents_at = read_footer(data, file_id, self.path)
        if record is not None:
            check_record(self.record, record, self.path)
        contents = data[self._contents_at : -FOOTER_BYTES]
        if digest(contents) != self.record.digest:
            raise ChecksumMismatch(
                "the table of contents is not what was written",
                path=self.path,
                actual=f"other bytes from offset {self._contents_at}",
            )
        top = Fields(unpack(contents, self.path, "table of contents"), self.path, "table of contents")
        self.fields = top.child("fields")
        self._sections = read_sections(top.child("sections"), data, PREAMBLE_BYTES, self._contents_at, self.path)
        top.refuse_unknown()

    def section(self, name: str, dtype: npt.DTypeLike, shape: tuple[int | None, ...]) -> Section:
        """The section `name`, whose type and shape must be as given (None: any extent)."""
        self._asked.add(name)
        section = self._sections.get(name)
        if section is None:
            raise CorruptFile("a section is missing", path=self.path, expected=name)
        fits = section.shape == shape or (
            len(section.shape) == len(shape)
            and all(want is None or want == have for want, have in zip(shape, section.shape, strict=True))
        )
        if section.dtype != dtype or not fits:
            raise CorruptFile(
                f"section {name} has the wrong shape or type",
                path=self.path,
                expected=f"{np.dtype(dtype).name} {list(shape)}",
                actual=f"{section.dtype.name} {list(section.shape)}",
            )
        return section

    def has(self, name: str) -> bool:
        """Whether there is a section `name`."""
        return name in self._sections

    def refuse_unknown(self) -> None:
        """Raise CorruptFile if a field or a section is left that nobody asked for.

        A file with a feature that readers need not know may have more of both.
        """
        if self._has_more:
            return
        self.fields.refuse_unknown()
        unknown = self._sections.keys() - self._asked
        if unknown:
            raise CorruptFile("unknown sections", path=self.path, actual=", ".join(sorted(unknown)[:10]))

    def section_bytes(self) -> dict[str, int]:
        """Length of every section, by name."""
        return {name: section.n_bytes for name, section in self._sections.items()}

    @property
    def n_bytes(self) -> int:
        """Length of the file."""
        return self.record.n_bytes

    def findings(self) -> list[FormatError]:
        """Read every byte; one error for each damaged chunk and each stretch of padding that is not zero."""
        found: list[FormatError] = []
        end = PREAMBLE_BYTES
        for section in sorted(self._sections.values(), key=lambda s: (s.offset, s.n_bytes)):
            found += self._padding_findings(end, section.offset)
            found += [section.damage(chunk) for chunk in section.damaged_chunks()]
            end = section.offset + section.n_bytes
        return found + self._padding_findings(end, self._contents_at)

    def close(self) -> None:
        """Close the file; arrays that came from it stay valid."""
        self._sections = {}
        self._file.close()

    def _padding_findings(self, low: int, high: int) -> list[FormatError]:
        if self._file.data[low:high] != bytes(high - low):
            return [CorruptFile(f"padding from offset {low} to {high} is not zero", path=self.path)]
        return []
