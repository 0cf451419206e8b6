"""Compares Quarry with other libraries: bytes at equal quality, quality at equal bytes, time from text.

The input are raw results of `bench.peers` and `bench.sweep.tradeoff` on the same documents and queries. Bytes are
those of vectors and ids on disk, for another library measured with an index without texts; the total includes
texts and, in Quarry, the inverted index. Qualities are those of dense search.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

from bench.harness.records import Record

__all__ = ["Choice", "build_s", "compare_peers", "find_best", "find_smallest", "setting_name", "vector_bytes"]

_VECTOR_PARTS = ("centroids", "codes", "quantizers", "ids")


@dataclass(frozen=True)
class Choice:
    """The index of a library, or of a setting of Quarry.

    Attributes:
        name: the library or the setting.
        ndcg_10: quality.
        n_bytes: bytes of vectors and ids per document.
        total_bytes: bytes on disk per document, texts included.
    """

    name: str
    ndcg_10: float
    n_bytes: float
    total_bytes: float


def vector_bytes(record: Record) -> float:
    """Return bytes per document of vectors and ids: centroids, codes, ids, and the quantizer's share."""
    parts = cast(dict[str, int], record["bytes"])
    return sum(parts[part] for part in _VECTOR_PARTS) / cast(int, record["n_documents"])


def setting_name(record: Record) -> str:
    """Return a name for the setting of a sweep's record; defaults of the search are left out."""
    index, search = cast(Record, record["index"]), cast(Record, record["search"])
    stored = _stored_parts(index) if "build" in index else [f"{index['factory']} alone"]  # codes of FAISS
    options = [f"{name} {value}" for name, value in search.items() if value not in (None, "auto")]
    return ", ".join([str(index["representation"]), *stored, *options])


def compare_peers(peers: Sequence[Record], sweep: Sequence[Record]) -> Iterator[str]:
    """Yield lines of Markdown: three tables, and in how many rows Quarry is better.

    Args:
        peers: results of `bench.peers` on one collection, including those of Quarry.
        sweep: results of `bench.sweep.tradeoff` on the same collection; may be empty.
    """
    measured = [record for record in peers if "skipped" not in record and "vectors_disk_bytes" in record]
    ours = [_peer_choice(record) for record in measured if _is_quarry(record) and _mode(record) == "dense"]
    ours += [_sweep_choice(record) for record in sweep if "ndcg_10" in record and "size_bytes" in record]
    others = [_peer_choice(record) for record in measured if not _is_quarry(record)]
    if not ours or not others:
        return
    yield "\n### At equal nDCG@10: bytes per document of vectors and ids (in brackets: all on disk)\n"
    yield from _compare_bytes(others, ours)
    yield "\n### At equal bytes: nDCG@10\n"
    yield from _compare_quality(others, ours)
    yield "\n### From text, with the same encoder: milliseconds per query (p50, 10 hits), seconds of a build\n"
    yield from _compare_times(measured)


def find_smallest(ndcg_10: float, choices: Sequence[Choice]) -> Choice | None:
    """Return the choice with the fewest bytes among those of at least this quality."""
    reaching = [each for each in choices if each.ndcg_10 >= ndcg_10]
    return min(reaching, key=lambda each: (each.n_bytes, -each.ndcg_10), default=None)


def find_best(n_bytes: float, choices: Sequence[Choice]) -> Choice | None:
    """Return the choice with the best quality among those of at most this many bytes."""
    within = [each for each in choices if each.n_bytes <= n_bytes]
    return max(within, key=lambda each: (each.ndcg_10, -each.n_bytes), default=None)


def _compare_bytes(others: list[Choice], ours: list[Choice]) -> Iterator[str]:
    yield "| | nDCG@10 | bytes | Quarry's least with at least this quality | nDCG@10 | bytes | share |"
    yield "| --- | ---: | ---: | --- | ---: | ---: | ---: |"
    n_smaller = 0
    for other in others:
        least = find_smallest(other.ndcg_10, ours)
        n_smaller += least is not None and least.n_bytes < other.n_bytes
        if least is None:
            best = max(ours, key=lambda each: each.ndcg_10)
            gap = f"none; the best is {other.ndcg_10 - best.ndcg_10:.4f} below: {best.name}"
            yield f"| {_format_choice(other)} | {gap} | {best.ndcg_10:.4f} | {_format_bytes(best)} | |"
        else:
            yield f"| {_format_choice(other)} | {_format_choice(least)} | {least.n_bytes / other.n_bytes:.0%} |"
    yield f"\nFewer bytes than {n_smaller} of {len(others)}."


def _compare_quality(others: list[Choice], ours: list[Choice]) -> Iterator[str]:
    yield "| | nDCG@10 | bytes | Quarry's best of at most these bytes | nDCG@10 | bytes | gain |"
    yield "| --- | ---: | ---: | --- | ---: | ---: | ---: |"
    n_better = 0
    for other in others:
        best = find_best(other.n_bytes, ours)
        if best is None:
            yield f"| {_format_choice(other)} | none | | | |"
            continue
        n_better += best.ndcg_10 > other.ndcg_10
        yield f"| {_format_choice(other)} | {_format_choice(best)} | {best.ndcg_10 - other.ndcg_10:+.4f} |"
    yield f"\nHigher nDCG@10 than {n_better} of {len(others)}."


def _compare_times(measured: list[Record]) -> Iterator[str]:
    """Yield times of libraries that store texts, with those of Quarry's settings as a share of them."""
    ours = [record for record in measured if _is_quarry(record) and "text_build_s" in record]
    theirs = [record for record in measured if not _is_quarry(record) and record["stores_text"]]
    names = [str(record["name"]) for record in ours]
    yield "| | p50 | build | " + " | ".join(f"{name}: p50 | its build" for name in names) + " |"
    yield "| --- | ---: | ---: |" + " ---: | ---: |" * len(ours)
    for record in theirs:
        shares = [
            f"{_p50_ms(each) / _p50_ms(record):.0%} | {build_s(each) / build_s(record):.0%}" for each in ours
        ]
        yield f"| {record['name']} | {_p50_ms(record):.2f} | {build_s(record):.1f} | {' | '.join(shares)} |"
    for record in ours:
        yield f"| {record['name']} | {_p50_ms(record):.2f} | {build_s(record):.1f} |" + " | |" * len(ours)
    encoding_s = cast(float, measured[0]["encoding_s"])
    yield f"\nEncoding takes {encoding_s:.1f} s of each build; the encoding of a query is included too."


def build_s(record: Record) -> float:
    """Return the seconds of a build from text; for other libraries the encoding was measured separately."""
    built = cast(float, record["text_build_s"])
    includes_encoding = _is_quarry(record) or bool(record["text_only"])
    return built if includes_encoding else built + cast(float, record["encoding_s"])


def _p50_ms(record: Record) -> float:
    return cast(float, record["text_p50_ms"])


def _is_quarry(record: Record) -> bool:
    return record["module"] == "quarry_index"


def _mode(record: Record) -> object:
    return cast(Record, record["settings"])["mode"]


def _peer_choice(record: Record) -> Choice:
    n_documents = cast(int, record["n_documents"])
    sizes = (cast(int, record[name]) / n_documents for name in ("vectors_disk_bytes", "text_disk_bytes"))
    return Choice(str(record["name"]), cast(float, record["ndcg_10"]), *sizes)


def _sweep_choice(record: Record) -> Choice:
    total = cast(int, record["size_bytes"]) / cast(int, record["n_documents"])
    return Choice(setting_name(record), cast(float, record["ndcg_10"]), vector_bytes(record), total)


def _stored_parts(index: Record) -> list[str]:
    build = cast(Record, index["build"])
    code_bytes = build.get("code_bytes", "default")
    codes = "" if code_bytes == 0 else f"codes of {code_bytes}"
    centroids = str(build.get("centroids", "int8"))
    words = [f"{codes} alone"] if centroids == "none" else [each for each in (centroids, codes) if each]
    return [*words, f"nlist {index['nlist']}"] if index["nlist"] else words


def _format_choice(choice: Choice) -> str:
    return f"{choice.name} | {choice.ndcg_10:.4f} | {_format_bytes(choice)}"


def _format_bytes(choice: Choice) -> str:
    return f"{choice.n_bytes:,.0f} ({choice.total_bytes:,.0f})"
