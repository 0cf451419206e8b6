"""One run of the first commands in bench/README.md on the small corpus, whose results several tests read."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bench.__main__ import main
from quarry.engine.cli.commands import main as quarry

__all__ = ["ReadmeRun", "run_readme", "write_subjects"]

_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass
class ReadmeRun:
    """The files that the commands wrote, and their exit statuses.

    Attributes:
        collection: the measured collection, a folder in BEIR's layout.
        cache: folder of prepared vectors.
        results: folder of raw results.
        statuses: exit status by command line.
    """

    collection: Path
    cache: Path
    results: Path
    statuses: dict[str, int] = field(default_factory=dict)


def write_subjects(folder: Path, corpus: Sequence[dict[str, object]]) -> Path:
    """Write the small corpus with a question for each subject, for which its four documents are relevant."""
    (folder / "qrels").mkdir(parents=True)
    docs, queries, judged = [], [], ["query-id\tcorpus-id\tscore"]
    for number, document in enumerate(corpus):
        subject = document["metadata"]["subject"]
        docs.append({"_id": f"d{number}", "title": document["title"], "text": document["text"]})
        judged.append(f"q-{subject}\td{number}\t1")
        if number % 4 == 0:
            queries.append({"_id": f"q-{subject}", "text": f"Tell me about a {subject}."})
    (folder / "corpus.jsonl").write_text("\n".join(map(json.dumps, docs)), encoding="utf-8")
    (folder / "queries.jsonl").write_text("\n".join(map(json.dumps, queries)), encoding="utf-8")
    (folder / "qrels" / "test.tsv").write_text("\n".join(judged), encoding="utf-8")
    return folder


def run_readme(page: str, folder: Path, corpus: Sequence[dict[str, object]]) -> ReadmeRun:
    """Run the commands in a folder, with the small corpus as the collection ``docstrings``; stop at a failure."""
    found = ReadmeRun(
        write_subjects(folder / "data" / "docstrings", corpus),
        folder / "cache",
        folder / "bench" / "results" / "runs",
    )
    (block,) = _BLOCK.findall(page)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("QUARRY_BENCH_CACHE", str(found.cache))
        patch.setenv("QUARRY_DATA", str(folder / "data"))
        for line in block.splitlines():
            words = shlex.split(line.removeprefix("$ "))
            status = quarry(words[1:]) if words[0] == "quarry" else main(words[3:])
            found.statuses[line.removeprefix("$ ")] = status
            if status:
                break
    return found
