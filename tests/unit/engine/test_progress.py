"""Progress is reported only to a caller that requests it."""

from __future__ import annotations

import pytest
from support.indexes.changes import open_index, options

from quarry import engine
from quarry.engine.progress import Progress, ProgressParts


@pytest.mark.parametrize("setting", [None, False])
def test_nothing_is_shown_without_a_terminal(setting: bool | None, capfd) -> None:
    with Progress(setting, "indexing") as progress:
        progress.update(3, 10)
    assert capfd.readouterr() == ("", "")


def test_a_bar_is_shown_on_demand_on_standard_error(capfd) -> None:
    with Progress(True, "indexing") as progress:
        progress.update(3, 10)
        progress.update(7)
    out, err = capfd.readouterr()
    assert out == ""
    assert "indexing" in err
    assert "7 documents" in err


@pytest.mark.parametrize("setting", [None, True])
def test_a_program_without_a_console_sees_nothing(setting: bool | None, monkeypatch) -> None:
    monkeypatch.setattr("sys.stderr", None)
    with Progress(setting, "indexing") as progress:
        progress.update(3, 10)


def test_a_bar_is_shown_on_a_terminal(capfd, monkeypatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with Progress(None, "indexing") as progress:
        progress.update(10, 10)
    assert "10/10" in capfd.readouterr().err


def test_a_function_is_called_at_every_step() -> None:
    steps: list[tuple[int, int | None]] = []
    with Progress(lambda n_done, n_total: steps.append((n_done, n_total)), "indexing") as progress:
        progress.update(1)
        progress.update(2, 5)
    assert steps == [(1, None), (2, 5)]


def test_a_failure_closes_the_bar_and_passes(capfd) -> None:
    with pytest.raises(ValueError, match="stop"), Progress(True, "indexing"):
        raise ValueError("stop")
    assert capfd.readouterr().err.endswith("\n")


def test_the_parts_of_work_are_summed() -> None:
    steps: list[tuple[int, int | None]] = []
    parts = ProgressParts(lambda n_done, n_total: steps.append((n_done, n_total)))
    first = parts.part()
    first(0, 5)
    first(5, 5)
    second = parts.part()
    second(2, 7)
    second(3, None)
    assert steps == [(0, 5), (5, 5), (7, 12), (8, 8)]


@pytest.mark.parametrize("shards", [None, 2])
def test_adding_merging_and_graphs_report_progress(tmp_path, shards: int | None) -> None:
    engine.build([], tmp_path / "index", shards=shards, **options())
    steps: dict[str, list[tuple[int, int | None]]] = {"add": [], "merge": [], "optimize": []}
    with open_index(tmp_path / "index", writable=True) as index:
        for number in range(3):
            docs = [{"id": f"{number}-{n}", "text": f"text {n}"} for n in range(40)]
            assert index.add(docs, progress=lambda *step: steps["add"].append(step)) == 40
            index.commit()
        index.merge(progress=lambda *step: steps["merge"].append(step))
        assert index.optimize(progress=lambda *step: steps["optimize"].append(step)) > 0
    assert steps["add"] == [(n, 40) for n in range(1, 41)] * 3
    for name in ("merge", "optimize"):
        assert steps[name][-1] == (120, 120), name
        assert steps[name] == sorted(steps[name])


def test_an_error_of_the_function_ends_the_work_and_loses_nothing(tmp_path) -> None:
    def stop(n_done: int, _: int | None) -> None:
        if n_done == 3:
            raise ValueError("stop")

    engine.build([], tmp_path / "index", **options())
    with open_index(tmp_path / "index", writable=True) as index:
        with pytest.raises(ValueError, match="stop"):
            index.add([{"id": str(n), "text": "text"} for n in range(10)], progress=stop)
        index.commit()
        assert sorted(index.ids()) == ["0", "1", "2"]
