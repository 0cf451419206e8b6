"""Quarry set against other libraries: bytes at equal quality, quality at equal bytes, time from text.

All come from raw results of `bench.peers` and `bench.sweep.tradeoff` on the same documents and queries. Bytes
are those of vectors and ids on disk, a peer's measured of an index without texts; the total is with texts, and
in Quarry
with the index of words. Qualities are of searches by meaning alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

from bench.harness.records import Record
from bench.sweep.labels import setting_name, vector_bytes

__all__ = ["Choice", "best_within", "cheapest_reaching", "claims"]


@dataclass(frozen=True)
class Choice:
    """One index that somebody could have.

    Attributes:
        name: of the library, or of Quarry's setting.
        ndcg_10: its quality.
        n_bytes: of vectors and ids, a document.
        total_bytes: of everything on disk, texts included, a document.
    """

    name: str
    ndcg_10: float
    n_bytes: float
    total_bytes: float


def claims(peers: Sequence[Record], sweep: Sequence[Record]) -> Iterator[str]:
    """Lines of Markdown: three tables, and what was met.

    Args:
        peers: results of `bench.peers` of one collection, Quarry's rows among them.
        sweep: results of `bench.sweep.tradeoff` of the same, or none.
    """
    measured = [record for record in peers if "skipped" not in record and "vectors_disk_bytes" in record]
    ours = [_row(record) for record in measured if _is_ours(record) and _mode(record) == "dense"]
    ours += [_swept(record) for record in sweep if "ndcg_10" in record and "size_bytes" in record]
    others = [_row(record) for record in measured if not _is_ours(record)]
    if not ours or not others:
        return
    yield "\n### At equal nDCG@10: bytes per document of vectors and ids (in brackets: all on disk)\n"
    yield from _cheaper(others, ours)
    yield "\n### At equal bytes: nDCG@10\n"
    yield from _better(others, ours)
    yield "\n### From text, with the same encoder: milliseconds of a query (p50, 10 hits), seconds of a build\n"
    yield from _times(measured)


def cheapest_reaching(ndcg_10: float, ours: Sequence[Choice]) -> Choice | None:
    """The choice of the fewest bytes among those of at least this quality."""
    reaching = [each for each in ours if each.ndcg_10 >= ndcg_10]
    return min(reaching, key=lambda each: (each.n_bytes, -each.ndcg_10), default=None)


def best_within(n_bytes: float, ours: Sequence[Choice]) -> Choice | None:
    """The best choice among those of no more bytes."""
    within = [each for each in ours if each.n_bytes <= n_bytes]
    return max(within, key=lambda each: (each.ndcg_10, -each.n_bytes), default=None)


def _cheaper(others: list[Choice], ours: list[Choice]) -> Iterator[str]:
    yield "| | nDCG@10 | bytes | Quarry's cheapest that reaches it | nDCG@10 | bytes | share |"
    yield "| --- | ---: | ---: | --- | ---: | ---: | ---: |"
    n_met = 0
    for other in others:
        found = cheapest_reaching(other.ndcg_10, ours)
        n_met += found is not None and found.n_bytes < other.n_bytes
        if found is None:
            best = max(ours, key=lambda each: each.ndcg_10)
            gap = f"none; the best is {other.ndcg_10 - best.ndcg_10:.4f} below: {best.name}"
            yield f"| {_facts(other)} | {gap} | {best.ndcg_10:.4f} | {_bytes(best)} | |"
        else:
            yield f"| {_facts(other)} | {_facts(found)} | {found.n_bytes / other.n_bytes:.0%} |"
    yield f"\nFewer bytes than {n_met} of {len(others)}."


def _better(others: list[Choice], ours: list[Choice]) -> Iterator[str]:
    yield "| | nDCG@10 | bytes | Quarry's best of no more bytes | nDCG@10 | bytes | gain |"
    yield "| --- | ---: | ---: | --- | ---: | ---: | ---: |"
    n_met = 0
    for other in others:
        found = best_within(other.n_bytes, ours)
        if found is None:
            yield f"| {_facts(other)} | none | | | |"
            continue
        n_met += found.ndcg_10 > other.ndcg_10
        yield f"| {_facts(other)} | {_facts(found)} | {found.ndcg_10 - other.ndcg_10:+.4f} |"
    yield f"\nHigher nDCG@10 than {n_met} of {len(others)}."


def _times(measured: list[Record]) -> Iterator[str]:
    """Rows that keep texts: how much slower or faster than each of Quarry's that was built from text."""
    ours = [record for record in measured if _is_ours(record) and "text_build_s" in record]
    theirs = [record for record in measured if not _is_ours(record) and record["stores_text"]]
    names = [str(record["name"]) for record in ours]
    yield "| | p50 | build | " + " | ".join(f"{name}: p50 | its build" for name in names) + " |"
    yield "| --- | ---: | ---: |" + " ---: | ---: |" * len(ours)
    for record in theirs:
        cells = [f"{_p50(each) / _p50(record):.0%} | {build_s(each) / build_s(record):.0%}" for each in ours]
        yield f"| {record['name']} | {_p50(record):.2f} | {build_s(record):.1f} | {' | '.join(cells)} |"
    for record in ours:
        yield f"| {record['name']} | {_p50(record):.2f} | {build_s(record):.1f} |" + " | |" * len(ours)
    encoding_s = cast(float, measured[0]["encoding_s"])
    yield f"\nOf a build, {encoding_s:.1f} s are encoding, which is the same for all; a query is encoded too."


def build_s(record: Record) -> float:
    """Seconds of a build from text: Quarry's has the encoding in it, a peer's comes after it."""
    built = cast(float, record["text_build_s"])
    encoded = _is_ours(record) or bool(record["text_only"])
    return built if encoded else built + cast(float, record["encoding_s"])


def _p50(record: Record) -> float:
    return cast(float, record["text_p50_ms"])


def _is_ours(record: Record) -> bool:
    return record["module"] == "quarry_index"


def _mode(record: Record) -> object:
    return cast(Record, record["settings"])["mode"]


def _row(record: Record) -> Choice:
    n_documents = cast(int, record["n_documents"])
    sizes = (cast(int, record[name]) / n_documents for name in ("vectors_disk_bytes", "text_disk_bytes"))
    return Choice(str(record["name"]), cast(float, record["ndcg_10"]), *sizes)


def _swept(record: Record) -> Choice:
    total = cast(int, record["size_bytes"]) / cast(int, record["n_documents"])
    return Choice(setting_name(record), cast(float, record["ndcg_10"]), vector_bytes(record), total)


def _facts(choice: Choice) -> str:
    return f"{choice.name} | {choice.ndcg_10:.4f} | {_bytes(choice)}"


def _bytes(choice: Choice) -> str:
    return f"{choice.n_bytes:,.0f} ({choice.total_bytes:,.0f})"
