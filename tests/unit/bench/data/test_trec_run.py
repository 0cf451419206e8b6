"""Rankings as files in TREC format."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.data.quality import read_run, write_run


def test_a_run_keeps_its_order_through_a_file(tmp_path: Path) -> None:
    run = {"q1": {"b": 2.0, "c": 2.0, "a": 2.0, "d": -1.0}, "q2": {}, "q3": {"a": 1e-3}}
    write_run(tmp_path / "x.run", run, "tag")
    back = read_run(tmp_path / "x.run")
    assert list(back["q1"]) == ["b", "c", "a", "d"]
    assert sorted(back["q1"], key=lambda name: back["q1"][name])[::-1] == ["b", "c", "a", "d"]
    assert back["q1"]["a"] == pytest.approx(2.0)
    assert back["q3"] == {"a": 1e-3}
    assert (tmp_path / "x.run").read_text(encoding="utf-8").splitlines()[0] == "q1 Q0 b 1 2.0 tag"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("q Q0 d 1 0.5", "5 fields"),
        ("q Q0 d 1 x t", "'x'"),
        ("q Q0 d 1 nan t", "'nan'"),
        ("q Q0 d0 1 1 t", "repeated"),
    ],
)
def test_a_damaged_run_file_is_refused(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "x.run").write_text(f"q Q0 d0 1 0.5 t\n{line}\n", encoding="utf-8")
    with pytest.raises(ValueError, match=message) as caught:
        read_run(tmp_path / "x.run")
    assert "line 2" in str(caught.value)


def test_a_run_file_cannot_hold_a_name_with_a_space(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'a b'"):
        write_run(tmp_path / "x.run", {"q": {"a b": 1.0}}, "tag")
