"""Progress goes to whoever asked for it, and to nobody else."""

from __future__ import annotations

import pytest

from quarry.engine.progress import Progress


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
