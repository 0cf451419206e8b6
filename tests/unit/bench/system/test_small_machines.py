"""Small measurements of a machine's answers, and of memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.__main__ import main
from bench.harness.records import read_records
from bench.system.small import measure_step


def test_a_run_that_was_ended_is_continued(
    beir_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index, out = tmp_path / "index", tmp_path / "out.jsonl"
    for _ in range(2):
        assert main(["machine", str(beir_folder), "--index", str(index), "--out", str(out)]) == 0
    assert capsys.readouterr().out.count("40 documents") == 1
    first, second = read_records(out)
    assert first == second
    assert (first["documents"], first["queries"]) == (40, 10)
    assert first["ndcg_10"].keys() == {"dense", "hybrid", "lexical"}  # type: ignore[attr-defined]
    assert min(first["ndcg_10"].values()) > 0.5  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("step", "parts"), [("texts", ["built", "searched"]), ("opened", ["opened"]), ("searched", ["searched"])]
)
def test_steps_on_a_small_machine(tmp_path: Path, step: str, parts: list[str]) -> None:
    parameters = {"n": 30, "path": str(tmp_path / "index")}
    if step != "texts":
        assert measure_step({"step": "vectors", **parameters})["built"]
    record = measure_step({"step": step, **parameters})
    assert list(record)[3:] == parts
    assert all(record[part]["peak_mb"] > 0 for part in parts)  # type: ignore[index]
