"""The manifest of a bundle is read back as it was written, and every other content is refused."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from support.faults.windows_rules import WindowsRules

from quarry.formats.bundle.encoder import (
    EncoderBundle,
    EncoderSettings,
    ParityRecord,
    RetrievalRecord,
    compute_encoder_identity,
    load_bundle,
    write_bundle,
)
from quarry.formats.bundle.folder import SourceRecord, add_bundle_file
from quarry.formats.errors import (
    ChecksumMismatch,
    CorruptFile,
    FormatError,
    FormatTooNew,
    InvalidSetting,
    TruncatedFile,
)

SETTINGS = EncoderSettings(
    name="Tiny \u00e9",
    precision="int8",
    dim=8,
    window=16,
    pooling="mean",
    normalize=True,
    query_prefix="query: ",
    document_prefix="passage:\n",
    beta=10.5,
    trained_representation="kmeans",
    source=SourceRecord("model.safetensors", "0" * 64),
    license="mit",
    parity=ParityRecord(3, 0.99, 0.9, 1.0, 0.95),
)
FILES: dict[str, bytes | Path] = {"model.onnx": b"graph", "tokenizer.json": b"{}", "LICENSE": b"Do what you like."}

Manifest = dict[str, Any]


@pytest.fixture
def bundle(tmp_path: Path) -> EncoderBundle:
    return write_bundle(tmp_path / "bundle", SETTINGS, FILES)


def damage(bundle: EncoderBundle, change: Callable[[Manifest], object]) -> Path:
    path = bundle.path / "bundle.json"
    manifest = json.loads(path.read_text("utf-8"))
    change(manifest)
    path.write_text(json.dumps(manifest), "utf-8")
    return bundle.path


def test_what_is_written_comes_back(bundle: EncoderBundle) -> None:
    assert load_bundle(bundle.path) == bundle
    assert load_bundle(str(bundle.path)).settings == SETTINGS
    assert {name: (bundle.path / name).read_bytes() for name in bundle.files} == FILES
    assert bundle.verify_files() == sum(len(content) for content in FILES.values() if isinstance(content, bytes))
    assert bundle.model_path.read_bytes() == b"graph"
    assert bundle.tokenizer_path.read_bytes() == b"{}"


def test_absent_values_come_back_as_none(tmp_path: Path) -> None:
    settings = replace(SETTINGS, beta=None, trained_representation=None, parity=None)
    assert write_bundle(tmp_path / "bundle", settings, FILES).settings == settings


def test_files_may_be_copied_from_paths(tmp_path: Path) -> None:
    (tmp_path / "graph").write_bytes(b"graph")
    files = {**FILES, "model.onnx": tmp_path / "graph"}
    assert write_bundle(tmp_path / "bundle", SETTINGS, files).model_path.read_bytes() == b"graph"


def test_writing_twice_gives_the_same_bytes(bundle: EncoderBundle, tmp_path: Path) -> None:
    other = write_bundle(tmp_path / "other", SETTINGS, dict(reversed(FILES.items())))
    assert (other.path / "bundle.json").read_bytes() == (bundle.path / "bundle.json").read_bytes()


@pytest.mark.skipif(sys.platform != "linux", reason="needs the lists of open files")
def test_a_bundle_is_written_where_open_files_cannot_be_renamed(tmp_path: Path) -> None:
    with WindowsRules(tmp_path).installed() as rules:
        bundle = write_bundle(tmp_path / "bundle", SETTINGS, FILES)
        add_bundle_file(bundle.path, "relevance.json", b"{}")
    assert not rules.refused
    assert load_bundle(bundle.path).files.keys() == {*FILES, "relevance.json"}


def test_nothing_is_overwritten(bundle: EncoderBundle) -> None:
    with pytest.raises(InvalidSetting, match="new folder"):
        write_bundle(bundle.path, SETTINGS, FILES)
    assert load_bundle(bundle.path) == bundle


@pytest.mark.parametrize(
    ("settings", "files"),
    [
        (SETTINGS, {**FILES, "../escape": b""}),
        (SETTINGS, {**FILES, "bundle.json": b""}),
        (SETTINGS, {"tokenizer.json": b"{}"}),
        (SETTINGS, {"model.onnx": b""}),
        (replace(SETTINGS, dim=0), FILES),
        (replace(SETTINGS, precision="Int 8"), FILES),
    ],
)
def test_values_that_readers_refuse_are_not_written(
    tmp_path: Path, settings: EncoderSettings, files: dict[str, bytes | Path]
) -> None:
    with pytest.raises(CorruptFile):
        write_bundle(tmp_path / "folder" / "bundle", settings, files)
    assert list((tmp_path / "folder").iterdir()) == []
    assert not (tmp_path / "escape").exists()


def test_no_bundle_at_the_path(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="no encoder bundle"):
        load_bundle(tmp_path / "nowhere")


def test_identity_depends_on_what_makes_vectors_and_on_nothing_else() -> None:
    identity = compute_encoder_identity(SETTINGS, "1" * 64)
    assert len(identity) == 32
    for same in (
        replace(SETTINGS, name="other", precision="fp32", parity=None, license="x", beta=None),
        replace(SETTINGS, trained_representation=None, source=SourceRecord("other.bin", "0" * 64)),
    ):
        assert compute_encoder_identity(same, "1" * 64) == identity
    others = [
        compute_encoder_identity(SETTINGS, "2" * 64),
        compute_encoder_identity(replace(SETTINGS, source=SourceRecord("model.safetensors", "3" * 64)), "1" * 64),
        compute_encoder_identity(replace(SETTINGS, pooling="cls"), "1" * 64),
        compute_encoder_identity(replace(SETTINGS, normalize=False), "1" * 64),
        compute_encoder_identity(replace(SETTINGS, query_prefix=""), "1" * 64),
        compute_encoder_identity(replace(SETTINGS, document_prefix=""), "1" * 64),
        compute_encoder_identity(replace(SETTINGS, window=17), "1" * 64),
        compute_encoder_identity(replace(SETTINGS, projection="4" * 64), "1" * 64),
        compute_encoder_identity(replace(SETTINGS, query_source=SourceRecord("q", "5" * 64)), "1" * 64),
    ]
    assert len({identity, *others}) == 1 + len(others)


def test_identity_is_computed_as_documented() -> None:
    """The identity is computed in a fixed way, because indexes store it."""
    text = (
        r'{"document_prefix":"passage:\n","normalise":true,"pooling":"mean","projection":null,'
        rf'"query_prefix":"query: ","source":"{"0" * 64}","tokenizer":"{"1" * 64}","window":16}}'
    )
    assert compute_encoder_identity(SETTINGS, "1" * 64) == sha256(text.encode()).hexdigest()[:32]


@pytest.mark.parametrize(
    "changes",
    [
        {"projection": "a" * 64},
        {"token_vectors": False, "pooling": "aggretriever"},
        {"query_source": SourceRecord("query.safetensors", "b" * 64)},
        {"retrieval": RetrievalRecord("docstrings", 80, 0.5, 0.25)},
    ],
)
def test_members_with_other_values_are_read_back(tmp_path: Path, changes: dict[str, Any]) -> None:
    settings = replace(SETTINGS, **changes)
    bundle = write_bundle(tmp_path / "bundle", settings, FILES)
    assert load_bundle(bundle.path).settings == settings
    assert changes.keys() <= json.loads((bundle.path / "bundle.json").read_bytes()).keys()


def test_members_with_default_values_are_not_written(bundle: EncoderBundle) -> None:
    manifest = json.loads((bundle.path / "bundle.json").read_bytes())
    assert not manifest.keys() & {"projection", "token_vectors", "query_source", "retrieval"}


def test_aggretriever_gives_no_token_vectors(bundle: EncoderBundle) -> None:
    changed = {"pooling": "aggretriever", "identity": compute_encoder_identity(
        replace(SETTINGS, pooling="aggretriever"), bundle.files["tokenizer.json"].sha256)}  # fmt: skip
    path = damage(bundle, lambda manifest: manifest.update(changed))
    with pytest.raises(CorruptFile, match="contradicts itself"):
        load_bundle(path)


FAR = ParityRecord(3, 0.99, 0.9, 0.97, 0.95)
NEAR = ParityRecord(3, 0.98, 0.1, 0.98, 0.1)


@pytest.mark.parametrize(
    ("changes", "is_interchangeable"),
    [
        ({"precision": "fp32", "parity": None}, True),
        ({"precision": "fp32", "parity": FAR}, False),
        ({"precision": "fp16", "parity": None}, False),
        ({"precision": "int8-weights", "parity": NEAR}, True),
        ({"precision": "int8", "parity": replace(NEAR, token_mean=0.9799)}, False),
        ({"precision": "int8", "parity": FAR}, False),
    ],
)
def test_only_variants_near_fp32_share_an_identity(
    tmp_path: Path, changes: dict[str, Any], is_interchangeable: bool
) -> None:
    bundle = write_bundle(tmp_path / "bundle", replace(SETTINGS, **changes), FILES)
    other = write_bundle(tmp_path / "other", replace(SETTINGS, **changes), {**FILES, "model.onnx": b"other"})
    assert (bundle.vector_identity == bundle.identity) == is_interchangeable
    assert (bundle.vector_identity == other.vector_identity) == is_interchangeable


MEMBERS = [
    ("projection", "A" * 64), ("projection", None), ("token_vectors", 1), ("token_vectors", None),
    ("query_source", None), ("query_source", {"file": "x"}), ("retrieval", {}), ("retrieval", None),
    ("retrieval", {"collection": "x", "n_queries": 0, "ndcg_10": 0.5, "ndcg_10_exact": 0.5}),
    ("retrieval", {"collection": "x", "n_queries": 1, "ndcg_10": 1.5, "ndcg_10_exact": 0.5}),
    ("precision", "int8-"), ("precision", "-int8"), ("precision", "int8-weights-4"),
    ("name", 3), ("name", "x" * 2000), ("name", "\ud800"), ("precision", "FP 32"), ("precision", None),
    ("dim", 0), ("dim", 8.0), ("dim", True), ("dim", "8"), ("dim", 2**40), ("window", 2), ("pooling", "sum"),
    ("pooling", "mean,cls"), ("normalise", 1), ("normalise", None), ("query_prefix", None),
    ("document_prefix", []),
    ("beta", 0), ("beta", -1.0), ("beta", "1"), ("beta", True), ("beta", 1e300), ("trained_representation", 1),
    ("source", None), ("source", {"file": "x"}), ("source", {"file": "a/b", "sha256": "0" * 64}),
    ("source", {"file": "x", "sha256": "0" * 63}), ("source", {"file": "x", "sha256": "0" * 64, "more": 1}),
    ("licence", None), ("parity", []), ("parity", {}),
    ("parity", {"n_texts": 0, "token_mean": 1, "token_min": 1, "pooled_mean": 1, "pooled_min": 1}),
    ("parity", {"n_texts": 1, "token_mean": 2, "token_min": 1, "pooled_mean": 1, "pooled_min": 1}),
    ("identity", "0" * 32), ("identity", "x"), ("identity", None), ("format", 0), ("format", "1"), ("format", 1.0),
    ("files", []), ("files", {}), ("files", None), ("unknown", 1), ("kind", 1), ("kind", None), ("kind", "A b"),
]  # fmt: skip


@pytest.mark.parametrize(("key", "value"), MEMBERS, ids=[f"{key}={value!r}"[:40] for key, value in MEMBERS])
def test_a_bad_member_is_refused(bundle: EncoderBundle, key: str, value: object) -> None:
    path = damage(bundle, lambda manifest: manifest.__setitem__(key, value))
    with pytest.raises(CorruptFile, match=r"bundle(\.json)?: "):
        load_bundle(path)


KEYS = ["format", "identity", "name", "precision", "dim", "window", "pooling", "normalise", "query_prefix",
        "document_prefix", "beta", "trained_representation", "source", "licence", "parity", "files"]  # fmt: skip


@pytest.mark.parametrize("key", KEYS)
def test_a_missing_member_is_refused(bundle: EncoderBundle, key: str) -> None:
    path = damage(bundle, lambda manifest: manifest.pop(key))
    with pytest.raises(CorruptFile, match=key):
        load_bundle(path)


@pytest.mark.parametrize(
    "name", ["../model.onnx", "/etc/passwd", "a/b", "a\\b", "", ".hidden", "bundle.json", "a\n"]
)
def test_names_that_lead_elsewhere_are_refused(bundle: EncoderBundle, name: str) -> None:
    record = {"sha256": "0" * 64, "n_bytes": 0}
    path = damage(bundle, lambda manifest: manifest["files"].__setitem__(name, record))
    with pytest.raises(CorruptFile, match="list of files"):
        load_bundle(path)


@pytest.mark.parametrize(
    "record",
    [{}, {"sha256": "0" * 64}, {"sha256": "G" * 64, "n_bytes": 5}, {"sha256": "0" * 64, "n_bytes": -1}, 5],
    ids=repr,
)
def test_a_bad_file_record_is_refused(bundle: EncoderBundle, record: object) -> None:
    path = damage(bundle, lambda manifest: manifest["files"].__setitem__("model.onnx", record))
    with pytest.raises(CorruptFile, match=r"files\.model\.onnx"):
        load_bundle(path)


def test_too_many_files_are_refused(bundle: EncoderBundle) -> None:
    many = {f"file{number}": {"sha256": "0" * 64, "n_bytes": 0} for number in range(40)}
    path = damage(bundle, lambda manifest: manifest["files"].update(many))
    with pytest.raises(CorruptFile, match="list of files"):
        load_bundle(path)


@pytest.mark.parametrize(
    "content",
    [
        b"", b"[]", b"null", b"{", b"\xff\xfe", b"[" * 60_000, b'{"format": 1, "format": 1}',
        b'{"format": NaN}', b'{"format": ' + b"1" * 10_000 + b"}", b" " * 70_000,
    ],
    ids=lambda content: repr(content[:20]),
)  # fmt: skip
def test_a_manifest_that_is_none_is_refused(bundle: EncoderBundle, content: bytes) -> None:
    (bundle.path / "bundle.json").write_bytes(content)
    with pytest.raises(CorruptFile, match=r"bundle\.json"):
        load_bundle(bundle.path)


def test_a_repeated_member_is_refused_inside_too(bundle: EncoderBundle) -> None:
    path = bundle.path / "bundle.json"
    path.write_text(path.read_text("utf-8").replace('"dim": 8', '"dim": 8, "dim": 8'), "utf-8")
    with pytest.raises(CorruptFile, match="'dim' appears twice"):
        load_bundle(bundle.path)


def test_a_manifest_without_a_kind_is_an_encoders(bundle: EncoderBundle) -> None:
    assert "kind" not in json.loads((bundle.path / "bundle.json").read_bytes())
    assert load_bundle(damage(bundle, lambda manifest: manifest.update(kind="encoder"))) == bundle


def test_another_kind_is_named(bundle: EncoderBundle) -> None:
    path = damage(bundle, lambda manifest: manifest.update(kind="reranker"))
    with pytest.raises(InvalidSetting, match="contains no encoder; expected kind encoder; found kind reranker"):
        load_bundle(path)


def test_a_later_format_is_recognised_whatever_else_it_holds(bundle: EncoderBundle) -> None:
    path = damage(bundle, lambda manifest: manifest.update(format=2, novelty=True))
    with pytest.raises(FormatTooNew, match="expected 1; found 2"):
        load_bundle(path)


def test_every_truncation_of_the_manifest_is_refused(bundle: EncoderBundle) -> None:
    path = bundle.path / "bundle.json"
    whole = path.read_bytes()
    for length in range(len(whole) - 1):  # the last byte is a line break
        path.write_bytes(whole[:length])
        with pytest.raises(FormatError):
            load_bundle(bundle.path)


def test_a_file_of_another_size_is_refused_at_load(bundle: EncoderBundle) -> None:
    bundle.model_path.write_bytes(b"grap")
    with pytest.raises(TruncatedFile, match=r"model\.onnx.*expected 5 bytes; found 4 bytes"):
        load_bundle(bundle.path)


def test_a_missing_file_is_refused_at_load(bundle: EncoderBundle) -> None:
    (bundle.path / "LICENSE").unlink()
    with pytest.raises(CorruptFile, match="LICENSE: a file of the bundle is missing"):
        load_bundle(bundle.path)


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_changed_file_is_found_by_verify(bundle: EncoderBundle, name: str) -> None:
    path = bundle.path / name
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    again = load_bundle(bundle.path)
    with pytest.raises(ChecksumMismatch, match=name):
        again.verify_files()
    with pytest.raises(ChecksumMismatch, match=name):
        again.verify_files([name])
    assert again.verify_files(set(FILES) - {name}) > 0


@pytest.mark.skipif(sys.platform == "win32", reason="symbolic links need a privilege on Windows")
def test_links_are_refused(bundle: EncoderBundle, tmp_path: Path) -> None:
    shutil.move(bundle.model_path, tmp_path / "elsewhere")
    bundle.model_path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CorruptFile, match="links are not allowed"):
        load_bundle(bundle.path)


def test_a_folder_in_place_of_a_file_is_refused(bundle: EncoderBundle) -> None:
    bundle.model_path.unlink()
    bundle.model_path.mkdir()
    with pytest.raises(CorruptFile, match="not a regular file"):
        load_bundle(bundle.path)
