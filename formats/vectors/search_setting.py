"""Calibrated search settings: how much a search for k hits reads, measured when a quantizer is trained."""

from __future__ import annotations

from dataclasses import dataclass

from quarry.formats.container.fields import Fields
from quarry.formats.errors import CorruptFile

__all__ = ["SearchSetting", "read_settings"]

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
