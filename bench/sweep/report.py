"""Writes tables and plots of the raw results in a folder; measures nothing."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import cast

from bench.harness.records import RUNS, Record, read_results
from bench.sweep.comparison import build_s, compare_peers, setting_name, vector_bytes
from bench.sweep.plots import draw_tradeoff

__all__ = ["add_arguments", "run"]

Column = tuple[str, Callable[[Record], str]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench report``."""
    about = "folder with results of tradeoff and peers (default: %(default)s)"
    parser.add_argument("folder", type=Path, nargs="?", default=RUNS, help=about)


def run(args: argparse.Namespace) -> int:
    """Write ``report.md`` into the folder, print it, and draw the plots."""
    text = "\n".join(_write_tables(args.folder)) + "\n"
    (args.folder / "report.md").write_text(text, encoding="utf-8")
    print(text)
    for prepared in dict.fromkeys(str(record["prepared"]) for record in read_results(args.folder, "tradeoff")):
        draw_tradeoff(args.folder, prepared)
    return 0


def _write_tables(folder: Path) -> Iterator[str]:
    yield "# Results"
    for title, name, columns in (
        ("Quarry and other libraries", "peers", _PEERS),
        ("Settings of Quarry", "tradeoff", _TRADEOFF),
    ):
        records = read_results(folder, name)
        for group in dict.fromkeys(map(_group, records)):
            latest = _latest(record for record in records if _group(record) == group)
            yield from _write_section(title, latest, columns)
            if name == "peers":
                sweep = [record for record in read_results(folder, "tradeoff") if _group(record) == group]
                yield from compare_peers(latest, _latest(sweep))


def _latest(records: Iterable[Record]) -> list[Record]:
    """Return the last result of each row."""
    return list({_row_key(record): record for record in records}.values())


def _group(record: Record) -> str:
    """Return the key of a table: results on the same texts and queries."""
    return str(record.get("prepared") or record.get("collection"))


def _write_section(title: str, records: list[Record], columns: tuple[Column, ...]) -> Iterator[str]:
    about = records[-1]
    sizes = f"{about['n_documents']} documents, {about['n_queries']} queries"
    yield f"\n## {title}: {about['collection']}, {sizes}\n"
    yield f"{about['machine']}, commit {about['commit']}.\n"
    measured = [record for record in records if "skipped" not in record]
    yield "| " + " | ".join(name for name, _ in columns) + " |"
    yield "| --- |" + " ---: |" * (len(columns) - 1)
    for record in measured:
        yield "| " + " | ".join(format_cell(record) for _, format_cell in columns) + " |"
    for record in records:
        if "skipped" in record:
            reason = str(record["skipped"]).splitlines()[-1][-200:]
            yield f"\nNot measured: {record.get('name') or setting_name(record)}, {reason}"


def _row_key(record: Record) -> str:
    return str(record.get("key") or record["name"])


def _format_number(field: str, form: str, scale: float = 1.0) -> Callable[[Record], str]:
    """Return a function that formats a field of a record, empty if it was not measured."""

    def format_cell(record: Record) -> str:
        value = record.get(field)
        return "" if value is None else format(cast(float, value) * scale, form)

    return format_cell


def _format_per_document(field: str) -> Callable[[Record], str]:
    def format_cell(record: Record) -> str:
        value = record.get(field)
        return "" if value is None else f"{cast(float, value) / cast(float, record['n_documents']):,.0f}"

    return format_cell


def _format_name(record: Record) -> str:
    return str(record["name"])


def _format_build(record: Record) -> str:
    return f"{build_s(record):.1f}" if "text_build_s" in record else ""


_MB = 1e-6
_PEERS: tuple[Column, ...] = (
    ("", _format_name),
    ("nDCG@10", _format_number("ndcg_10", ".4f")),
    ("R@100", _format_number("recall_100", ".4f")),
    ("vector bytes per document, ids included", _format_per_document("vectors_disk_bytes")),
    ("all bytes per document on disk", _format_per_document("text_disk_bytes")),
    ("text in, p50 ms", _format_number("text_p50_ms", ".2f")),
    ("vector in, p50 ms", _format_number("vector_p50_ms", ".2f")),
    ("build from text, s", _format_build),
    ("build from vectors, s", _format_number("vectors_build_s", ".1f")),
    ("open, ms", _format_number("open_ms", ".0f")),
    ("import, ms", _format_number("import_ms", ".0f")),
    ("peak RSS of a build, MB", _format_number("text_peak_rss_bytes", ".0f", _MB)),
    ("peak RSS of searches, MB", _format_number("peak_rss_bytes", ".0f", _MB)),
)
_TRADEOFF: tuple[Column, ...] = (
    ("", setting_name),
    ("nDCG@10", _format_number("ndcg_10", ".4f")),
    ("R@100", _format_number("recall_100_judged", ".4f")),
    ("recall of exact 10", _format_number("recall_10", ".3f")),
    ("vector bytes per document, ids included", lambda record: f"{vector_bytes(record):,.0f}"),
    ("p50 ms", _format_number("p50_ms", ".3f")),
    ("p95 ms", _format_number("p95_ms", ".3f")),
    ("p99 ms", _format_number("p99_ms", ".3f")),
    ("p99 ms, one caller per core", _format_number("callers_p99_ms", ".3f")),
    ("queries/s, a batch on all threads", _format_number("qps_all", ".0f")),
    ("build, s", _format_number("build_s", ".1f")),
    ("open, ms", _format_number("open_ms", ".1f")),
    ("RSS, MB", _format_number("peak_rss_bytes", ".0f", _MB)),
)
