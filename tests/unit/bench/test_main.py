"""The command `python -m bench` and its list of measurements."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.__main__ import COMMANDS, main


def test_an_unknown_measurement_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nonsense"]) == 2
    listed = capsys.readouterr().err
    assert all(name in listed for name in COMMANDS)


def test_every_measurement_has_a_name(repository: Path) -> None:
    found = {
        ".".join(path.relative_to(repository / "bench").with_suffix("").parts)
        for path in (repository / "bench").rglob("*.py")
        if "\ndef run(" in path.read_text(encoding="utf-8") and path.parent.name != "gpu"
    }
    assert found | {"gpu.command"} == {command.module for command in COMMANDS.values()}


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - {"gpu"}))  # gpu needs torch
def test_every_measurement_lists_its_arguments(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    for module in COMMANDS[name].needs:
        pytest.importorskip(module, reason=f"the measurement needs {module}")
    with pytest.raises(SystemExit) as caught:
        main([name, "--help"])
    assert caught.value.code == 0
    assert f"usage: python -m bench {name}" in capsys.readouterr().out
