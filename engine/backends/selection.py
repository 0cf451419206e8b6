"""Selects a backend for each segment: by libraries and devices, by size, and by the memory that is left.

Measured with 384 dimensions (bench/results/backends.jsonl): below 20,000 centroids a scan is as fast as any index.
With 122,084, inverted lists and a graph find the same documents in .79 and .85 ms, the lists with a fifteenth of
the memory; in batches the lists take half the time. So lists are the default, and a graph is used if one was
written. The number of queries in a batch does not change this order.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence
from typing import NamedTuple

from quarry.engine.backends.protocol import BackendType
from quarry.engine.backends.registry import Adapter, find_backend
from quarry.engine.options import OpenOptions
from quarry.engine.process.cuda import has_cuda
from quarry.engine.quantization.candidates import default_candidates
from quarry.formats.container.directory import Directory
from quarry.formats.errors import InvalidSetting
from quarry.formats.snapshot import OpenSegment
from quarry.formats.vectors.hnsw_graph import graph_name

_USUAL_HITS = 10  # of the search for which a scan and lists are compared
_ROWS_SCANNED = 8  # in the time in which one is scored exactly, by its distance

__all__ = ["Choice", "choose_backends"]


class Choice(NamedTuple):
    """The backend selected for a segment.

    Attributes:
        backend: its name.
        adapter: the backend.
        reason: the reason, for `stats`.
        needed_bytes: estimated main memory.
    """

    backend: str
    adapter: Adapter
    reason: str
    needed_bytes: int


def choose_backends(
    segments: Sequence[OpenSegment],
    options: OpenOptions,
    room_bytes: int | None = None,
    without: Collection[str] = (),
) -> list[Choice]:
    """Select a backend for each segment; memory is given to large segments first.

    Args:
        segments: segments of one index.
        options: options with the requested backend.
        room_bytes: main memory for all backends together; None: no limit.
        without: names of backends that "auto" must not select.

    Raises:
        BackendUnavailable: a library of the requested backend is missing.
        InvalidSetting: the requested backend needs more memory than is left.
    """
    if options.backend != "auto":
        return _choose_requested(segments, options, room_bytes)
    written = _graphs(segments, options)
    choices: dict[int, Choice] = {}
    for number in sorted(range(len(segments)), key=lambda each: -segments[each].reader.n_rows):
        names = [each for each in _by_preference(segments[number], written, options) if each[0] not in without]
        choices[number] = _first_that_fits(segments[number], names, room_bytes)
        if room_bytes is not None:
            room_bytes -= choices[number].needed_bytes
    return [choices[number] for number in range(len(segments))]


def _choose_requested(
    segments: Sequence[OpenSegment], options: OpenOptions, room_bytes: int | None
) -> list[Choice]:
    name = options.backend
    choices = [_choose_suited(segment, options) for segment in segments]
    needed = sum(choice.needed_bytes for choice in choices)
    if room_bytes is not None and needed > room_bytes:
        raise InvalidSetting(
            f"backend {find_backend(name)[0]} does not fit into the memory limit",
            expected=f"{needed} bytes for backends",
            actual=f"{room_bytes} bytes left of the limit",
        )
    return choices


def _choose_suited(segment: OpenSegment, options: OpenOptions) -> Choice:
    """Choose the requested backend, or a scan if the segment lacks what it needs."""
    name = options.backend
    if name == "cpu_faiss" and segment.reader.lists is None:
        return _choice(_without_index(segment), segment, "the segment has no inverted lists")
    if name == "hnsw" and not _is_for_graph(segment, options):
        return _choice(_without_index(segment), segment, "the segment is too small for a graph")
    if name == "scan" and segment.reader.centroids.kind == "none":
        return _choice("exact", segment, "the segment stores codes only")
    return _choice(name, segment, "requested")


def _by_preference(segment: OpenSegment, written: frozenset[str], options: OpenOptions) -> list[tuple[str, str]]:
    """Return names and reasons, the best first; the last one needs no memory."""
    preferences = []
    if (segment.reader.lists is not None and not _is_faster_to_scan(segment)) or _is_for_graph(segment, options):
        if has_cuda():
            preferences.append(("gpu", "there is a CUDA device"))
        if graph_name(segment.record.file.file_id) in written:
            preferences.append(("hnsw", "a graph was written"))
    if segment.reader.lists is not None and not _is_faster_to_scan(segment):
        preferences.append(("cpu_faiss", "the segment has inverted lists"))
    return [*preferences, (_without_index(segment), "all centroids are read: there are few, or no index fits")]


def _first_that_fits(segment: OpenSegment, names: list[tuple[str, str]], room_bytes: int | None) -> Choice:
    skipped = ""
    for name, reason in names:
        choice = _choice(name, segment, reason + skipped)
        if not choice.needed_bytes or room_bytes is None or choice.needed_bytes <= room_bytes:
            return choice
        skipped += f"; not enough memory for {name} ({choice.needed_bytes} bytes)"
    raise AssertionError("the last one needs no memory")


def _choice(backend: str | BackendType, segment: OpenSegment, reason: str) -> Choice:
    name, adapter = find_backend(backend)
    return Choice(name, adapter, reason, adapter.load(name).needed_bytes(segment))


def _without_index(segment: OpenSegment) -> str:
    return "exact" if segment.reader.centroids.kind == "none" else "scan"


def _is_faster_to_scan(segment: OpenSegment) -> bool:
    """Return whether codes do not tell vectors apart by their distances, as if norms differ widely."""
    if segment.distance_dim is None or segment.reader.centroids.kind == "none":
        return False
    return default_candidates(segment, _USUAL_HITS) * _ROWS_SCANNED >= segment.reader.passages.n_passages


def _is_for_graph(segment: OpenSegment, options: OpenOptions) -> bool:
    """Return whether a segment is large enough to gain from a graph."""
    return segment.reader.n_rows >= options.thresholds.graph_rows


def _graphs(segments: Sequence[OpenSegment], options: OpenOptions) -> frozenset[str]:
    """Return the names of the graph files of large segments; none if the folder cannot be listed."""
    names: set[str] = set()
    for folder in {segment.reader.path.parent for segment in segments if _is_for_graph(segment, options)}:
        with contextlib.suppress(OSError):  # graphs are optional
            names |= {name for name in Directory(folder).names() if name.endswith(".hnsw")}
    return frozenset(names)
