"""Tuning limits: when segments get lists, graphs or merges, and how much memory writers use.

The defaults were measured, or suit a machine of a few gigabytes. Other values are passed to `quarry.engine.build`
and `Engine.open` as ``thresholds=Thresholds(...)``. They are not stored in an index, so they may differ each time
it is opened; files that are already written stay unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from quarry.engine.arguments import shown
from quarry.formats.container.directory import WriterLimits
from quarry.formats.errors import InvalidSetting

__all__ = ["MergeLimits", "Thresholds", "checked_thresholds"]

_MOST = 1 << 40  # of a limit of writers; numbers that no machine reaches would overflow in native code


@dataclass(frozen=True, kw_only=True)
class MergeLimits:
    """Limits that decide when segments are merged.

    Attributes:
        width: how many segments of one level are merged, and how many times larger the next level is; at least 2.
        floor_bytes: smaller segments are all of the lowest level.
        max_bytes: no merge makes a larger segment; this bounds the disk space that a merge needs.
        dead_share: share of a segment's bytes that may belong to deleted documents.
        dead_bytes: fewer bytes of deleted documents in a segment are not worth a commit.
    """

    width: int = 8
    floor_bytes: int = 2 << 20
    max_bytes: int = 5 << 30
    dead_share: float = 0.2
    dead_bytes: int = 64 << 10

    def __post_init__(self) -> None:
        _check_least(self, width=2, floor_bytes=1, max_bytes=1, dead_share=0, dead_bytes=0)


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """Tuning limits: when segments get lists, graphs or merges, and how much memory writers use.

    Attributes:
        list_rows: minimum number of centroids of a segment with inverted lists; with so many, lists answer in half
            the time of a scan (`bench/results/ivf_switch.jsonl`).
        training_rows: the same if only codes are stored; fewer do not train a codebook that is worth its bytes.
        long_code_rows: minimum number of centroids of an index that stores only codes for codes of 8 bits a
            sub-quantizer, whose codebook is sixteen times as large as that of 4 bits; fewer do not train it.
        graph_rows: minimum number of centroids of a segment for which `Engine.optimize` writes an HNSW graph and
            backend "hnsw" searches one; in smaller ones a scan is as fast (`bench/results/backends.jsonl`).
        graph_step_rows: centroids that are scored in the time in which a graph collects one; where a graph would
            have to collect too many, backend "hnsw" scores all.
        nlist: number of inverted lists of a quantizer trained from now on, lowered if there are few centroids;
            None: about 3/4 of the root of the number of centroids, more for millions.
        calibration_queries: most queries that the searches of a new quantizer are calibrated with; fewer take less
            time and find settings that differ more from those of other queries.
        sync_s: seconds after which `Engine.sync` commits what it has done so far, if there is more to do.
        reencoding_s: seconds of work that `Engine.reencode` loses at most if its process is killed, apart from the
            document being encoded.
        merging: when segments are merged.
        writing: memory of the writers of files.

    Raises:
        InvalidSetting: a value is out of range or of a wrong type.
    """

    list_rows: int = 20_000
    training_rows: int = 1024
    long_code_rows: int = 100_000
    graph_rows: int = 20_000
    graph_step_rows: int = 16
    nlist: int | None = None
    calibration_queries: int = 512
    sync_s: int = 300
    reencoding_s: int = 30
    merging: MergeLimits = field(default_factory=MergeLimits)
    writing: WriterLimits = field(default_factory=WriterLimits)

    def __post_init__(self) -> None:
        _check_least(self, list_rows=0, training_rows=0, long_code_rows=0, graph_rows=0, sync_s=0)
        if self.nlist is not None:
            _check_least(self, nlist=1)
        _check_least(self, calibration_queries=1, graph_step_rows=1, reencoding_s=0)
        for name, kind in (("merging", MergeLimits), ("writing", WriterLimits)):
            _check_type(getattr(self, name), name, kind)
        _check_least(self.writing, **{each.name: 1 for each in fields(WriterLimits)})
        for each in fields(WriterLimits):
            if getattr(self.writing, each.name) > _MOST:
                raise InvalidSetting(
                    f"{each.name} is out of range",
                    expected=f"a number up to {_MOST}",
                    actual=shown(getattr(self.writing, each.name)),
                )


def checked_thresholds(value: Thresholds | None) -> Thresholds:
    """Return the thresholds given to a public function; for None the defaults.

    Raises:
        InvalidSetting: the value is something else.
    """
    if value is not None:
        _check_type(value, "thresholds", Thresholds)
    return value or Thresholds()


def _check_type(value: object, name: str, kind: type) -> None:
    if not isinstance(value, kind):
        raise InvalidSetting(f"{name} is of a wrong type", expected=f"{kind.__name__}(...)", actual=shown(value))


def _check_least(values: object, **least: int) -> None:
    """Check that fields are numbers of the type of their default, and at least so large."""
    for name, low in least.items():
        value = getattr(values, name)
        types = (int, float) if name == "dead_share" else (int,)
        if type(value) not in types or not value >= low:
            raise InvalidSetting(
                f"{name} is out of range", expected=f"a number from {low} on", actual=shown(value)
            )
