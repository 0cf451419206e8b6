"""The command ``quarry export``: its output, its errors, and the files it leaves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from quarry.engine.cli.commands import main
from quarry.formats.bundle.encoder import load_bundle

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def bundle(checkpoint: Path, tmp_path: Path, capsys: Captured) -> Path:
    assert main(["export", str(checkpoint), str(tmp_path / "bundle"), "--precision", "fp32"]) == 0
    capsys.readouterr()
    return tmp_path / "bundle"


def refused(words: list[object], capsys: Captured) -> str:
    assert main(["export", *map(str, words)]) == 1
    return capsys.readouterr().err


def test_the_loss_of_a_precision_is_reported(checkpoint: Path, tmp_path: Path, capsys: Captured) -> None:
    out = tmp_path / "out"
    assert main(["export", str(checkpoint), str(out)]) == 0
    settings = load_bundle(out).settings
    assert settings.precision == "int8"
    assert settings.parity
    assert settings.retrieval
    first, close, effect = capsys.readouterr().out.splitlines()
    assert first == f"{out}: encoder checkpoint, int8, {load_bundle(out).identity}"
    assert close.startswith("compared with fp32: ")
    assert f"token_mean {settings.parity.token_mean}" in close
    assert effect.startswith("effect: collection docstrings")
    assert f"ndcg_10 {settings.retrieval.ndcg_10}" in effect
    assert main(["export", str(checkpoint), str(tmp_path / "other"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["precision"], told["identity"]) == ("int8", load_bundle(out).identity)
    assert told["retrieval"]["ndcg_10"] == settings.retrieval.ndcg_10
    assert main(["export", "--check", "--json", str(out)]) == 0
    assert json.loads(capsys.readouterr().out)["path"] == str(out)


@pytest.mark.parametrize(
    "option",
    ["--precision fp32", "--name x", "--head cls", "--no-normalize", "--normalize", "--target sm89", "--tensorrt"],
)
def test_a_check_takes_no_options(bundle: Path, capsys: Captured, option: str) -> None:
    name = option.split(maxsplit=1)[0]
    assert f"not an option with --check; found {name}\n" in refused([bundle, "--check", *option.split()], capsys)


def test_a_target_is_for_an_engine(checkpoint: Path, tmp_path: Path, capsys: Captured) -> None:
    words = [checkpoint, tmp_path / "out", "--precision", "fp16", "--target", "sm89"]
    assert "--target needs --tensorrt; found sm89" in refused(words, capsys)
    assert not (tmp_path / "out").exists()


def test_graphs_that_cannot_become_an_engine_are_refused_before_the_export(
    checkpoint: Path, tmp_path: Path, capsys: Captured
) -> None:
    words = [checkpoint, tmp_path / "out", "--precision", "fp16", "--tensorrt"]
    assert refused([*words, "--target", "sm1"], capsys).startswith("quarry: ")
    assert "one graph; found --query-checkpoint" in refused([*words, "--query-checkpoint", checkpoint], capsys)
    assert not (tmp_path / "out").exists()


def test_a_bundle_is_no_checkpoint(bundle: Path, tmp_path: Path, capsys: Captured) -> None:
    message = refused([bundle, tmp_path / "out"], capsys)
    assert f"{bundle}: this is a bundle" in message
    assert "expected a checkpoint" in message


def test_a_file_is_no_checkpoint(checkpoint: Path, tmp_path: Path, capsys: Captured) -> None:
    path = checkpoint / "config.json"
    assert f"{path}: a checkpoint is a folder; found a file" in refused([path, tmp_path / "out"], capsys)


def test_a_place_that_nothing_can_be_written_to_is_refused_at_once(checkpoint: Path, capsys: Captured) -> None:
    out = checkpoint / "config.json" / "out"
    assert f"{out}: the folder cannot be created here; " in refused([checkpoint, out], capsys)


PROGRAM = """
import os, resource, signal, sys, threading, time
from pathlib import Path
from quarry.engine.cli.commands import main

def full_disk():
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

def ended():
    def watch():
        while not list(Path(os.environ["TMPDIR"]).glob("quarry-export-*/exact/*")):
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGTERM)
    threading.Thread(target=watch, daemon=True).start()

{how}()
sys.exit(main(["export", {checkpoint!r}, {out!r}]))
"""


def failed(how: str, checkpoint: Path, out: Path, temporary: Path) -> subprocess.CompletedProcess[str]:
    temporary.mkdir()
    program = PROGRAM.format(how=how, checkpoint=str(checkpoint), out=str(out))
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX limits and signals")
def test_a_full_disk_is_named_and_nothing_is_left(checkpoint: Path, tmp_path: Path) -> None:
    done = failed("full_disk", checkpoint, tmp_path / "out", tmp_path / "temporary")
    assert done.returncode == 1
    assert "File too large: '" in done.stderr
    assert str(tmp_path / "temporary") in done.stderr
    assert sorted(each.name for each in tmp_path.iterdir()) == ["checkpoint", "temporary"]
    assert list((tmp_path / "temporary").iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX limits and signals")
def test_an_export_that_is_ended_leaves_nothing(checkpoint: Path, tmp_path: Path) -> None:
    done = failed("ended", checkpoint, tmp_path / "out", tmp_path / "temporary")
    assert done.returncode == 143, done.stderr
    assert sorted(each.name for each in tmp_path.iterdir()) == ["checkpoint", "temporary"]
    assert list((tmp_path / "temporary").iterdir()) == []


@pytest.mark.parametrize("name", ["model.onnx", "tokenizer.json", "reference.json", "LICENSE"])
def test_a_check_names_the_file_that_was_changed(bundle: Path, capsys: Captured, name: str) -> None:
    content = bytearray((bundle / name).read_bytes())
    content[len(content) // 2] ^= 1
    (bundle / name).write_bytes(content)
    assert f"{bundle / name}: the SHA-256 of the file differs from the manifest" in refused(
        [bundle, "--check"], capsys
    )


def test_a_check_finds_other_vectors(bundle: Path, tmp_path: Path, capsys: Captured) -> None:
    """The check reports a bundle whose files match its manifest, but whose vocabulary was changed."""
    from quarry.formats.bundle.encoder import write_bundle

    tokenizer = json.loads((bundle / "tokenizer.json").read_bytes())
    words = tokenizer["model"]["vocab"]
    words["a"], words["t"] = words["t"], words["a"]
    opened = load_bundle(bundle)
    files: dict[str, bytes | Path] = {name: bundle / name for name in opened.files}
    files["tokenizer.json"] = json.dumps(tokenizer).encode()
    other = write_bundle(tmp_path / "other", opened.settings, files).path
    assert "differs too much from fp32" in refused([other, "--check"], capsys)


@pytest.mark.parametrize("library", ["onnx", "safetensors"])
def test_missing_libraries_of_an_export_are_named(
    checkpoint: Path, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    message = refused([checkpoint, tmp_path / "out"], capsys)
    assert "expected pip install '.[export]' in a checkout of Quarry" in message
    assert library in message
