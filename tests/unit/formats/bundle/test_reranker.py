"""The manifest of a reranker's bundle, as far as it differs from that of an encoder."""

from __future__ import annotations

import json
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from quarry.engine.bundled import default_bundle_path
from quarry.formats.bundle.encoder import load_bundle
from quarry.formats.bundle.folder import SourceRecord
from quarry.formats.bundle.reranker import (
    RerankerBundle,
    RerankerParity,
    RerankerSettings,
    compute_reranker_identity,
    load_reranker_bundle,
    write_reranker_bundle,
)
from quarry.formats.errors import CorruptFile, InvalidSetting

SETTINGS = RerankerSettings(
    name="Tiny \u00e9",
    precision="int8",
    window=16,
    source=SourceRecord("model.safetensors", "0" * 64),
    license="mit",
    parity=RerankerParity(3, 0.01, 0.1, 0.99, 0.98),
)
FILES: dict[str, bytes | Path] = {"model.onnx": b"graph", "tokenizer.json": b"{}", "LICENSE": b"Do what you like."}


@pytest.fixture
def bundle(tmp_path: Path) -> RerankerBundle:
    return write_reranker_bundle(tmp_path / "bundle", SETTINGS, FILES)


def test_what_is_written_comes_back(bundle: RerankerBundle, tmp_path: Path) -> None:
    assert load_reranker_bundle(str(bundle.path)) == bundle
    assert bundle.settings == SETTINGS
    assert json.loads((bundle.path / "bundle.json").read_bytes())["kind"] == "reranker"
    assert bundle.verify_files() == sum(len(content) for content in FILES.values() if isinstance(content, bytes))
    exact = replace(SETTINGS, parity=None)
    assert write_reranker_bundle(tmp_path / "exact", exact, FILES).settings == exact


def test_kinds_are_not_confused(bundle: RerankerBundle, tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="contains no encoder; expected kind encoder; found kind reranker"):
        load_bundle(bundle.path)
    with pytest.raises(InvalidSetting, match="contains no reranker; expected kind reranker; found kind encoder"):
        load_reranker_bundle(default_bundle_path())
    with pytest.raises(InvalidSetting, match="no reranker bundle"):
        load_reranker_bundle(tmp_path)


def test_identity_is_computed_as_documented() -> None:
    text = f'{{"kind":"reranker","source":"{"0" * 64}","tokenizer":"{"1" * 64}","window":16}}'
    identity = sha256(text.encode()).hexdigest()[:32]
    assert compute_reranker_identity(SETTINGS, "1" * 64) == identity
    assert (
        compute_reranker_identity(replace(SETTINGS, name="x", precision="fp32", parity=None), "1" * 64) == identity
    )
    assert compute_reranker_identity(replace(SETTINGS, window=17), "1" * 64) != identity


PARITY = {"n_pairs": 3, "difference_mean": 0.01, "difference_max": 0.1, "correlation": 0.99, "rank_correlation": 1}
MEMBERS = [
    ("name", 3), ("precision", "FP 32"), ("window", 2), ("window", "16"), ("source", None), ("licence", None),
    ("parity", {}), ("parity", {**PARITY, "n_pairs": 0}), ("parity", {**PARITY, "difference_max": -0.1}),
    ("parity", {**PARITY, "correlation": 1.1}), ("parity", {**PARITY, "more": 1}), ("identity", "0" * 32),
    ("dim", 8), ("kind", None),
]  # fmt: skip


@pytest.mark.parametrize(("key", "value"), MEMBERS, ids=[f"{key}={value!r}"[:60] for key, value in MEMBERS])
def test_a_bad_member_is_refused(bundle: RerankerBundle, key: str, value: object) -> None:
    path = bundle.path / "bundle.json"
    path.write_text(json.dumps({**json.loads(path.read_bytes()), key: value}), "utf-8")
    with pytest.raises(CorruptFile, match=r"bundle(\.json)?: "):
        load_reranker_bundle(bundle.path)


@pytest.mark.parametrize(
    "key", ["name", "precision", "window", "source", "licence", "parity", "identity", "files"]
)
def test_a_missing_member_is_refused(bundle: RerankerBundle, key: str) -> None:
    path = bundle.path / "bundle.json"
    manifest = json.loads(path.read_bytes())
    del manifest[key]
    path.write_text(json.dumps(manifest), "utf-8")
    with pytest.raises(CorruptFile, match=key):
        load_reranker_bundle(bundle.path)
