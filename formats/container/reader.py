"""Opens a container file: verifies preamble and footer, and gives access to its fields and sections."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from quarry.formats.container.directory import Directory, LoadedFile, MappedFile
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

_LOADED = (FileKind.MANIFEST, FileKind.SHARDS)  # small, and deleted while others read them


class ContainerReader:
    """A container file that is open for reading; its preamble, table of contents and footer are verified.

    Args:
        directory: the folder of the index.
        name: the file's name.
        kind: expected kind of file.
        record: its record in the manifest, if there is one.

    Attributes:
        required_features: bits of the features that a reader must support, all of them known.
        writer_features: bits of the features that a writer must support.
        unknown_writer_features: bits of the features that a writer must support and this version does not.
        optional_features: bits of the features that a reader may ignore.

    Raises:
        FileNotFoundError: there is no such file.
        FormatError: the file is damaged, or not of this kind, or not the one of the record.
    """

    def __init__(self, directory: Directory, name: str, kind: FileKind, record: FileRecord | None = None) -> None:
        self.path = directory.path / name
        self._file: MappedFile | LoadedFile = (
            directory.load(name, MAX_MANIFEST_BYTES) if kind in _LOADED else directory.map(name)
        )
        self._sections: dict[str, Section] = {}
        self._requested: set[str] = set()
        try:
            self._read(kind, record)
        except BaseException:
            self.close()
            raise

    def _read(self, kind: FileKind, record: FileRecord | None) -> None:
        data = self._file.data
        if len(data) < PREAMBLE_BYTES + FOOTER_BYTES:
            raise TruncatedFile("the file is too short", path=self.path, actual=f"{len(data)} bytes")
        file_id, self.required_features, self.writer_features, self.optional_features = check_preamble(
            data[:PREAMBLE_BYTES], kind, self.path
        )
        self.unknown_writer_features = self.writer_features & ~KNOWN_WRITER_FEATURES
        self._has_more = bool(self.unknown_writer_features or self.optional_features & ~KNOWN_OPTIONAL_FEATURES)
        self.record, self._contents_at = read_footer(data, file_id, self.path)
        if record is not None:
            check_record(self.record, record, self.path)
        contents = data[self._contents_at : -FOOTER_BYTES]
        if digest(contents) != self.record.digest:
            raise ChecksumMismatch(
                "the table of contents is damaged",
                path=self.path,
                actual=f"other bytes from offset {self._contents_at}",
            )
        top = unpack(contents, self.path, "table of contents")
        self.fields = top.child("fields")
        self._sections = read_sections(top.child("sections"), data, PREAMBLE_BYTES, self._contents_at, self.path)
        top.refuse_unknown()

    def section(self, name: str, dtype: npt.DTypeLike, shape: tuple[int | None, ...]) -> Section:
        """Return the section `name`, whose type and shape must be as given (None: any extent)."""
        self._requested.add(name)
        section = self._sections.get(name)
        if section is None:
            raise CorruptFile("a section is missing", path=self.path, expected=name)
        fits = section.shape == shape or (
            len(section.shape) == len(shape)
            and all(expected in (None, actual) for expected, actual in zip(shape, section.shape, strict=True))
        )
        if section.dtype != dtype or not fits:
            raise CorruptFile(
                f"section {name} has the wrong shape or type",
                path=self.path,
                expected=f"{np.dtype(dtype).name} {list(shape)}",
                actual=f"{section.dtype.name} {list(section.shape)}",
            )
        return section

    @property
    def sections_read(self) -> frozenset[str]:
        """Names of the sections that were read, or looked for."""
        return frozenset(self._requested)

    def has(self, name: str) -> bool:
        """Return whether there is a section `name`."""
        return name in self._sections

    def refuse_unknown(self) -> None:
        """Raise CorruptFile if there are fields or sections that were not read.

        Unknown ones are allowed in a file with an unknown feature that readers may ignore.
        """
        if self._has_more:
            return
        self.fields.refuse_unknown()
        unknown = self._sections.keys() - self._requested
        if unknown:
            raise CorruptFile("unknown sections", path=self.path, actual=", ".join(sorted(unknown)[:10]))

    def section_bytes(self) -> dict[str, int]:
        """Return the size of every section, by name."""
        return {name: section.n_bytes for name, section in self._sections.items()}

    @property
    def n_bytes(self) -> int:
        """Size of the file."""
        return self.record.n_bytes

    def find_damage(self) -> list[FormatError]:
        """Read every byte; return an error for each damaged chunk and each range of padding that is not zero."""
        damage: list[FormatError] = []
        end = PREAMBLE_BYTES
        for section in sorted(self._sections.values(), key=lambda s: (s.offset, s.n_bytes)):
            damage += self._find_nonzero_padding(end, section.offset)
            damage += [section.damage_error(chunk) for chunk in section.find_damaged_chunks()]
            end = section.offset + section.n_bytes
        return damage + self._find_nonzero_padding(end, self._contents_at)

    def close(self) -> None:
        """Close the file; arrays from it stay valid."""
        self._sections = {}
        self._file.close()

    def _find_nonzero_padding(self, low: int, high: int) -> list[FormatError]:
        if self._file.data[low:high] != bytes(high - low):
            return [CorruptFile(f"padding from offset {low} to {high} is not zero", path=self.path)]
        return []
