"""Which backend searches which segment: by what is installed and there, by size, and by the memory that is left.

Measured on 384 dimensions (bench/results/backends.jsonl): below 20,000 centroids reading all of them is as quick
as any index. Of 122,084, inverted lists and a graph find the same documents in the same time, .79 and .85 ms, the
lists in a fifteenth of the memory; in batches the lists take half the time. So lists are the rule, and a graph is
searched where somebody had it written. How many queries come at once changes none of this.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence
from typing import NamedTuple

from quarry.engine.backends.registry import BACKENDS
from quarry.engine.gpu.cuda import cuda_is_there
from quarry.engine.options import OpenOptions
from quarry.formats.container.directory import Directory
from quarry.formats.errors import InvalidSetting
from quarry.formats.snapshot import OpenSegment
from quarry.formats.vectors.hnsw_graph import graph_name

__all__ = ["LAST_RESORTS", "Choice", "choose_backends"]

LAST_RESORTS = ("scan", "exact")
"""What reads all centroids, needs no memory, and is taken where nothing else can be."""


class Choice(NamedTuple):
    """What searches a segment.

    Attributes:
        backend: a key of `quarry.engine.backends.registry.BACKENDS`.
        reason: why, for people.
        needed_bytes: of main memory, about.
    """

    backend: str
    reason: str
    needed_bytes: int


def choose_backends(
    segments: Sequence[OpenSegment],
    options: OpenOptions,
    room_bytes: int | None = None,
    without: Collection[str] = (),
) -> list[Choice]:
    """A choice for each segment; large segments take their share of the memory first.

    Args:
        segments: of one index.
        options: the backend that is asked for, and its device.
        room_bytes: main memory that all backends together may hold; None: as much as they need.
        without: names that "auto" shall not take.

    Raises:
        BackendUnavailable: a library of the backend asked for is missing.
        InvalidSetting: the backend asked for needs more memory than there is.
    """
    if options.backend != "auto":
        return _asked_for(segments, options, room_bytes)
    written = _graphs(segments, options)
    choices: dict[int, Choice] = {}
    for number in sorted(range(len(segments)), key=lambda each: -segments[each].reader.n_rows):
        names = [each for each in _by_preference(segments[number], written, options) if each[0] not in without]
        choices[number] = _first_that_fits(segments[number], names, room_bytes)
        if room_bytes is not None:
            room_bytes -= choices[number].needed_bytes
    return [choices[number] for number in range(len(segments))]


def _asked_for(segments: Sequence[OpenSegment], options: OpenOptions, room_bytes: int | None) -> list[Choice]:
    name = options.backend
    choices = [_resolved(segment, options) for segment in segments]
    needed = sum(choice.needed_bytes for choice in choices)
    if room_bytes is not None and needed > room_bytes:
        raise InvalidSetting(
            f"backend {name} does not fit into the memory allowed",
            expected=f"{needed} bytes for it",
            actual=f"{room_bytes} bytes left of the limit",
        )
    return choices


def _resolved(segment: OpenSegment, options: OpenOptions) -> Choice:
    """The backend asked for, or what takes its place in a segment that it is not for."""
    name = options.backend
    if name == "cpu_faiss" and segment.reader.lists is None:
        return _choice(_without_index(segment), segment, "the segment has no inverted lists")
    if name == "hnsw" and not _is_for_graph(segment, options):
        return _choice(_without_index(segment), segment, "the segment is too small for a graph")
    if name == "scan" and segment.reader.centroids.kind == "none":
        return _choice("exact", segment, "the segment holds codes alone")
    return _choice(name, segment, "asked for")


def _by_preference(segment: OpenSegment, written: frozenset[str], options: OpenOptions) -> list[tuple[str, str]]:
    """Names and reasons, the best first, the last of which needs no memory."""
    found = []
    if segment.reader.lists is not None or _is_for_graph(segment, options):
        if cuda_is_there():
            found.append(("gpu", "there is a CUDA device"))
        if graph_name(segment.record.file.file_id) in written:
            found.append(("hnsw", "a graph was written"))
    if segment.reader.lists is not None:
        found.append(("cpu_faiss", "the segment has inverted lists"))
    return [*found, (_without_index(segment), "all centroids are read: few, or without an index that fits")]


def _first_that_fits(segment: OpenSegment, names: list[tuple[str, str]], room_bytes: int | None) -> Choice:
    passed_over = ""
    for name, reason in names:
        choice = _choice(name, segment, reason + passed_over)
        if not choice.needed_bytes or room_bytes is None or choice.needed_bytes <= room_bytes:
            return choice
        passed_over += f"; memory is short for {name} ({choice.needed_bytes} bytes)"
    raise AssertionError("the last of them needs no memory")


def _choice(name: str, segment: OpenSegment, reason: str) -> Choice:
    return Choice(name, reason, BACKENDS[name].load(name).needed_bytes(segment))


def _without_index(segment: OpenSegment) -> str:
    return "exact" if segment.reader.centroids.kind == "none" else "scan"


def _is_for_graph(segment: OpenSegment, options: OpenOptions) -> bool:
    """Whether a segment is large enough to gain from a graph."""
    return segment.reader.n_rows >= options.thresholds.graph_rows


def _graphs(segments: Sequence[OpenSegment], options: OpenOptions) -> frozenset[str]:
    """Names of the graphs that lie beside segments large enough to have one; none where that cannot be seen."""
    found: set[str] = set()
    for folder in {segment.reader.path.parent for segment in segments if _is_for_graph(segment, options)}:
        with contextlib.suppress(OSError):  # graphs only make searching faster
            found |= {name for name in Directory(folder).names() if name.endswith(".hnsw")}
    return frozenset(found)
