"""One run of the first commands in bench/README.md on the small corpus, whose results several tests read."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.processes import until

from bench.__main__ import main
from quarry.engine.cli.commands import main as quarry

__all__ = ["ReadmeRun", "run_readme", "write_subjects"]

_LONGEST_S = 500.0
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass
class ReadmeRun:
    """The files that the commands wrote, and their exit statuses.

    Attributes:
        collection: the measured collection, a folder in BEIR's layout.
        cache: folder of prepared vectors.
        results: folder of raw results.
        statuses_path: file of `statuses`, which is written last.
    """

    collection: Path
    cache: Path
    results: Path
    statuses_path: Path

    @property
    def statuses(self) -> dict[str, int]:
        """The exit status by command line."""
        found: dict[str, int] = json.loads(self.statuses_path.read_text(encoding="utf-8"))
        return found


def write_subjects(folder: Path, corpus: Sequence[dict[str, Any]]) -> Path:
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
    """Run the commands in a folder, with the small corpus as the collection ``docstrings``; stop at a failure.

    If the folder exists, another process runs them there, or has run them: wait for its results.
    """
    results = folder / "bench" / "results" / "runs"
    found = ReadmeRun(folder / "data" / "docstrings", folder / "cache", results, folder / "statuses")
    try:
        folder.mkdir()
    except FileExistsError:
        until(found.statuses_path.exists, _LONGEST_S, 0.1)
        return found
    write_subjects(found.collection, corpus)
    statuses = {}
    (block,) = _BLOCK.findall(page)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("QUARRY_BENCH_CACHE", str(found.cache))
        patch.setenv("QUARRY_DATA", str(folder / "data"))
        for line in block.splitlines():
            words = shlex.split(line.removeprefix("$ "))
            status = quarry(words[1:]) if words[0] == "quarry" else main(words[3:])
            statuses[line.removeprefix("$ ")] = status
            if status:
                break
    partial = folder / "partial"
    partial.write_text(json.dumps(statuses), encoding="utf-8")
    partial.rename(found.statuses_path)
    return found
