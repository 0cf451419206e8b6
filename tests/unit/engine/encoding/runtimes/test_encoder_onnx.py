"""The ONNX Runtime adapter."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from support.models.tiny_checkpoint import DIM, WORDS, random_weights, write_checkpoint

from quarry.engine.bundled import DEFAULT_NAME, default_bundle_path
from quarry.engine.encoding.opening import open_encoder
from quarry.engine.encoding.runtimes.onnx_encoder import OnnxEncoder
from quarry.engine.encoding.runtimes.onnx_session import open_session
from quarry.exporters.export import export
from quarry.formats.bundle.encoder import EncoderBundle, compute_encoder_identity, load_bundle, write_bundle
from quarry.formats.errors import BackendUnavailable, ChecksumMismatch, CorruptFile, InvalidQuery, InvalidSetting

WINDOW = 16


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> EncoderBundle:
    root = tmp_path_factory.mktemp("tiny")
    prompts = {"query": "q: ", "passage": "d: "}
    return export(write_checkpoint(root / "checkpoint", prompts=prompts), root / "bundle", "fp32")


def rewritten(bundle: EncoderBundle, folder: Path, **changes: object) -> EncoderBundle:
    """Copy a bundle with other settings, or with other contents of files given by name."""
    contents = {name: bundle.path / name for name in bundle.files}
    for key in [key for key in changes if "." in key]:
        contents[key] = changes.pop(key)
    return write_bundle(folder, replace(bundle.settings, **changes), contents)


def test_the_default_is_the_bundled_encoder() -> None:
    encoder = open_encoder(None)
    assert isinstance(encoder, OnnxEncoder)
    assert (encoder.name, encoder.dim, encoder.normalize, encoder.beta) == (DEFAULT_NAME, 384, True, None)
    assert encoder.identity == load_bundle(default_bundle_path()).identity
    assert "int8" in repr(encoder)


def test_the_bundled_encoder_knows_what_texts_mean() -> None:
    encoder = open_encoder()
    question = encoder.encode_query("How do plants turn sunlight into food?")
    answer = encoder.encode_query("Photosynthesis stores the energy of light in sugar.")
    other = encoder.encode_query("The parliament adjourned without a vote on the budget.")
    assert question @ answer > 0.4
    assert question @ other < 0.2


def test_of_two_graphs_only_the_one_in_use_is_loaded(tmp_path: Path) -> None:
    checkpoint, other = (
        write_checkpoint(tmp_path / str(seed), weights=random_weights(seed=seed)) for seed in (0, 1)
    )
    both = export(checkpoint, tmp_path / "both", "fp32", query_checkpoint=other)
    content = both.model_path.read_bytes()
    both.model_path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    encoder = open_encoder(both.path)
    single = open_encoder(export(other, tmp_path / "single", "fp32").path)
    np.testing.assert_array_equal(encoder.encode_query("cat"), single.encode_query("cat"))
    with pytest.raises(ChecksumMismatch, match=r"both/model\.onnx"):
        list(encoder.windows("cat"))
    both.model_path.write_bytes(content)
    assert len(list(encoder.windows("cat"))) == 1


def test_a_path_or_string_names_a_bundle(tiny: EncoderBundle) -> None:
    assert open_encoder(tiny.path).identity == open_encoder(str(tiny.path)).identity == tiny.identity


@pytest.mark.parametrize("source", [3, b"bytes", object()])
def test_anything_else_is_no_encoder(source: object) -> None:
    with pytest.raises(InvalidSetting, match="not an encoder"):
        open_encoder(source)  # type: ignore[arg-type]


def test_the_mean_of_a_window_is_the_encoders_own_pooling() -> None:
    encoder = open_encoder()
    text = "Special tokens count in the mean."
    (window,) = encoder.windows(text)
    mean = window.text_mean / np.linalg.norm(window.text_mean)
    np.testing.assert_allclose(mean, encoder.encode_query(text), atol=1e-6)
    assert not np.allclose(window.values.mean(axis=0), window.text_mean, atol=1e-3)


def test_prefixes_and_special_tokens_are_encoded_but_left_out(tiny: EncoderBundle, tmp_path: Path) -> None:
    plain = OnnxEncoder(rewritten(tiny, tmp_path / "plain", query_prefix="", document_prefix=""))
    (prefixed,) = OnnxEncoder(tiny).windows("cat")
    (whole,) = plain.windows("d: cat")
    assert len(prefixed.values) == 3
    np.testing.assert_array_equal(prefixed.values, whole.values[2:])
    np.testing.assert_array_equal(prefixed.starts, whole.starts[2:] - 3)
    np.testing.assert_array_equal(prefixed.text_mean, whole.text_mean)
    np.testing.assert_array_equal(prefixed.first, whole.first)
    np.testing.assert_array_equal(OnnxEncoder(tiny).encode_query("cat"), plain.encode_query("q: cat"))


def test_windows_are_as_full_as_the_encoder_allows(tiny: EncoderBundle) -> None:
    room = WINDOW - 2 - 2  # special tokens, prefix
    sizes = [len(window.values) for window in OnnxEncoder(tiny).windows("z" * 60)]
    assert sizes == [room] * 5
    assert OnnxEncoder(tiny).encode_query("z" * room).shape == (DIM,)


@pytest.mark.parametrize("normalize", [True, False])
def test_a_long_query_is_the_weighted_mean_of_its_windows(tmp_path: Path, normalize: bool) -> None:
    checkpoint = write_checkpoint(tmp_path / "checkpoint", normalize=normalize)
    bundle = export(checkpoint, tmp_path / "bundle", "fp32")
    encoder = OnnxEncoder(rewritten(bundle, tmp_path / "whole", cut_queries=False))
    parts = ["a" * 14, "b" * 14, "c" * 5]  # windows of 14 tokens
    vectors = np.stack([encoder.encode_query(part) for part in parts])
    expected = np.array([14, 14, 5]) @ vectors
    expected /= np.linalg.norm(expected) if normalize else 33
    np.testing.assert_allclose(encoder.encode_query(" ".join(parts)), expected, atol=1e-6)
    np.testing.assert_array_equal(OnnxEncoder(bundle).encode_query(" ".join(parts)), vectors[0])


def test_an_empty_query_error_quotes_it(tiny: EncoderBundle) -> None:
    with pytest.raises(InvalidQuery, match=r"no token.*' \\n'"):
        OnnxEncoder(tiny).encode_query(" \n")


def test_a_changed_graph_is_not_run(tiny: EncoderBundle, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny.path, tmp_path / "bundle"))
    content = bytearray((folder / "model.onnx").read_bytes())
    content[len(content) // 2] ^= 1
    (folder / "model.onnx").write_bytes(content)
    encoder = open_encoder(folder)
    with pytest.raises(ChecksumMismatch, match=r"model\.onnx"):
        encoder.encode_query("cat")


@pytest.mark.parametrize("name", ["model.onnx", "tokenizer.json"])
def test_invalid_files_with_correct_checksums_are_refused(tiny: EncoderBundle, tmp_path: Path, name: str) -> None:
    encoder = OnnxEncoder(rewritten(tiny, tmp_path / "bundle", **{name: b"not this"}))
    with pytest.raises(CorruptFile, match=name):
        encoder.encode_query("cat")


def test_a_graph_of_another_dim_is_refused(tiny: EncoderBundle, tmp_path: Path) -> None:
    encoder = OnnxEncoder(rewritten(tiny, tmp_path / "bundle", dim=DIM + 1))
    with pytest.raises(CorruptFile, match="other inputs or outputs"):
        encoder.encode_query("cat")


def test_a_window_without_room_for_text_is_refused(tiny: EncoderBundle, tmp_path: Path) -> None:
    encoder = OnnxEncoder(rewritten(tiny, tmp_path / "bundle", window=4))
    with pytest.raises(CorruptFile, match="no room for text"):
        encoder.encode_query("cat")


def test_settings_of_the_tokenizer_to_pad_and_truncate_do_not_count(tiny: EncoderBundle, tmp_path: Path) -> None:
    tokenizer = json.loads(tiny.tokenizer_path.read_bytes())
    tokenizer["truncation"] = {"max_length": 5, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}
    changed = rewritten(tiny, tmp_path / "bundle", **{"tokenizer.json": json.dumps(tokenizer).encode()})
    text = "abcdefgh"
    (window,) = OnnxEncoder(changed).windows(text)
    assert len(window.values) == len(text)
    np.testing.assert_array_equal(OnnxEncoder(changed).encode_query(text), OnnxEncoder(tiny).encode_query(text))


def test_identity_follows_the_tokenizer(tiny: EncoderBundle) -> None:
    digest = sha256(tiny.tokenizer_path.read_bytes()).hexdigest()
    assert compute_encoder_identity(tiny.settings, digest) == tiny.identity
    assert compute_encoder_identity(tiny.settings, sha256(WORDS[0].encode()).hexdigest()) != tiny.identity


_TELEMETRY = """
import os, numpy  # numpy starts threads of its own
from quarry.engine.encoding.runtimes.onnx_session import import_onnxruntime
before = len(os.listdir("/proc/self/task"))
import_onnxruntime()
assert os.environ["ORT_DISABLE_TELEMETRY"] == "1"
assert len(os.listdir("/proc/self/task")) == before
"""


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs /proc")
def test_onnxruntime_starts_no_thread_of_its_own(repository: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "ORT_DISABLE_TELEMETRY"}
    command = [sys.executable, "-c", _TELEMETRY]
    done = subprocess.run(
        command, cwd=repository, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr


_FORK = """
import os, sys, numpy as np
from quarry.engine.encoding.opening import open_encoder
encoder = open_encoder(sys.argv[1])
before = encoder.encode_query("cat")
reader, writer = os.pipe()
child = os.fork()
if child == 0:
    os.write(writer, encoder.encode_query("cat").tobytes())
    sys.exit(0)
os.close(writer)
with os.fdopen(reader, "rb") as pipe:
    found = pipe.read()
_, status = os.waitpid(child, 0)
assert status == 0, status
assert found == before.tobytes()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no /proc")
def test_without_proc_the_graph_is_not_called_damaged(monkeypatch):
    """ONNX Runtime finds the paths of files whose weights it maps in /proc."""

    def refuse(*_, **__):
        raise RuntimeError("requires procfs")

    monkeypatch.setattr("onnxruntime.InferenceSession", refuse)
    with pytest.raises(CorruptFile, match="requires procfs"):
        open_session(default_bundle_path() / "model.onnx")
    monkeypatch.setattr(os.path, "exists", lambda path: path != "/proc/self/fd")
    with pytest.raises(BackendUnavailable, match="expected /proc to be mounted"):
        open_session(default_bundle_path() / "model.onnx")


@pytest.mark.skipif(sys.platform == "win32", reason="no fork on Windows")
def test_an_encoder_works_on_both_sides_of_a_fork(tiny: EncoderBundle, repository: Path) -> None:
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", _FORK, str(tiny.path)]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
