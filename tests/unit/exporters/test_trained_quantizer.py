"""The quantizer and the representation of a checkpoint are exported to the bundle and used by the index."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.indexes.stored import only_segment, stored
from support.models.tiny_checkpoint import DIM, write_checkpoint

pytest.importorskip("onnx", reason="exporting needs onnx")

from quarry import engine
from quarry.engine import open_encoder
from quarry.engine.encoding.encoder import trained_quantizer, trained_settings
from quarry.engine.thresholds import Thresholds
from quarry.exporters.export import export
from quarry.formats.bundle.encoder import EncoderBundle
from quarry.formats.container.directory import Directory
from quarry.formats.errors import CorruptFile, FormatError, InvalidSetting
from quarry.formats.vectors.quantizer import Quantizer, open_quantizer, write_quantizer

SETTINGS = {
    "format": 1, "pooling": "mean", "normalise": True, "window": 32, "query_prefix": "", "document_prefix": "",
    "beta": None, "representation": "pieces", "representation_settings": {"tokens_per_piece": 5},
}  # fmt: skip
TEXTS = ["abc def. ghi", "klm"]
N_SUB, DSUB = 8, 3


def made_quantizer(seed: int = 0) -> Quantizer:
    """Return a quantizer with a rotation to fewer dimensions and random codebooks for encoding and scores."""
    rng = np.random.default_rng(seed)
    encode, score = rng.normal(0, 0.3, (2, N_SUB, 16, DSUB)).astype(np.float32)
    rotation = np.linalg.qr(rng.standard_normal((DIM, DIM)))[0][: N_SUB * DSUB].astype(np.float32)
    return Quantizer(np.zeros((1, N_SUB * DSUB), np.float32), encode, score, rotation, by_residual=False)


def checkpoint_with(folder: Path, made: Quantizer, **changes: object) -> Path:
    write_checkpoint(folder)
    name = write_quantizer(Directory(folder), made).name
    (folder / "quarry.json").write_text(json.dumps(SETTINGS | {"quantizer": name} | changes), "utf-8")
    return folder


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> EncoderBundle:
    folder = tmp_path_factory.mktemp("quantized")
    checkpoint = checkpoint_with(folder / "checkpoint", made_quantizer())
    return export(checkpoint, folder / "bundle", "fp32", texts=TEXTS, n_recorded=1)


def words(count: int) -> list[str]:
    rng = np.random.default_rng(3)
    return [" ".join("".join(rng.choice(list("abcdefgh"), 3)) for _ in range(4)) for _ in range(count)]


def is_same(found: Quantizer, expected: Quantizer) -> bool:
    names = ("encode_codebook", "score_codebook", "rotation")
    return all(np.array_equal(getattr(found, name), getattr(expected, name)) for name in names)


def test_a_bundle_brings_quantizer_and_settings(bundle: EncoderBundle, tmp_path: Path) -> None:
    encoder = open_encoder(bundle.path)
    found = trained_quantizer(encoder)
    assert found is not None
    assert found.identity() == made_quantizer().identity()
    assert trained_settings(encoder) == {"tokens_per_piece": 5}
    assert trained_quantizer(encoder, 4) is found
    assert trained_quantizer(encoder, 8) is None
    plain = checkpoint_with(tmp_path / "checkpoint", made_quantizer(), quantizer="")
    settings = {name: value for name, value in SETTINGS.items() if name != "representation_settings"}
    (plain / "quarry.json").write_text(json.dumps(settings), "utf-8")
    other = export(plain, tmp_path / "bundle", "fp32", texts=TEXTS, n_recorded=1)
    assert other.identity == bundle.identity  # the vectors are the same
    assert trained_quantizer(open_encoder(other.path)) is None
    assert trained_quantizer(None) is None


def test_few_documents_are_coded_without_training(bundle: EncoderBundle, tmp_path: Path) -> None:
    texts = words(20)
    documents = [{"id": str(number), "text": text} for number, text in enumerate(texts)]
    engine.build(documents, tmp_path / "index", encoder=bundle.path, centroids="none", progress=False)
    expected, encoder = made_quantizer(), open_encoder(bundle.path)
    with stored(tmp_path / "index") as snapshot:
        (segment,) = snapshot.segments
        assert segment.quantizer is not None
        assert segment.quantizer.identity() == expected.identity()  # nothing was trained
        assert snapshot.manifest.settings.representation_settings == {"tokens_per_piece": 5}
        packed = segment.reader.lists.codes()[segment.reader.lists.places()]
        codes = np.stack([packed & 15, packed >> 4], axis=2).reshape(len(packed), N_SUB)
        offsets = segment.reader.centroids.offsets
        counts = np.diff(offsets.astype(np.int64))
    query = encoder.encode_query("abc") @ expected.rotation.T
    table = np.einsum("mkd,md->mk", expected.score_codebook, query.reshape(N_SUB, DSUB))
    scores = table[np.arange(N_SUB), codes].sum(1)
    best = np.maximum.reduceat(scores, np.cumsum(counts) - counts)
    with engine.Engine.open(tmp_path / "index", encoder=bundle.path) as opened:
        for hit in opened.search("abc", 20, mode="dense"):
            assert hit.score == pytest.approx(best[int(hit.id)], abs=1e-4)


@pytest.mark.parametrize("centroids", ["none", "int8"])
def test_many_documents_get_lists_and_keep_the_codebooks(
    bundle: EncoderBundle, tmp_path: Path, centroids: str
) -> None:
    path, small = tmp_path / "index", Thresholds(calibration_queries=64, list_rows=300)
    engine.build(words(300), path, encoder=bundle.path, centroids=centroids, progress=False, thresholds=small)
    with only_segment(path) as first:
        assert first.quantizer is not None
        assert first.quantizer.nlist > 1
        assert first.quantizer.probe_recall is not None
        assert first.quantizer.search_settings  # calibrated with queries
        assert is_same(first.quantizer, made_quantizer())
        # int8 is too coarse for the vectors of this encoder, which are alike
        assert first.reader.centroids.kind == ("none" if centroids == "none" else "float16")
    with engine.Engine.open(path, encoder=bundle.path, writable=True, thresholds=small) as opened:
        opened.add(words(200))
        opened.commit()
        opened.merge(retrain=centroids == "int8")
        assert len(opened.search("abc", 5)) == 5
    with only_segment(path) as merged:
        assert merged.quantizer is not None
        assert is_same(merged.quantizer, made_quantizer())


@pytest.mark.parametrize(
    ("changes", "error", "named"),
    [
        ({"quantizer": "../x.quant"}, CorruptFile, "quantizer"),
        ({"quantizer": "missing.quant"}, InvalidSetting, r"missing\.quant"),
        ({"representation_settings": {"tokens_per_piece": 0}}, CorruptFile, "tokens_per_piece"),
        ({"representation_settings": {"tokens_per_piece": "5"}}, CorruptFile, "tokens_per_piece"),
        ({"representation_settings": [5]}, CorruptFile, "representation_settings"),
        ({"query_checkpoint": "../up"}, CorruptFile, "query_checkpoint"),
        ({"query_checkpoint": "queries"}, InvalidSetting, "queries"),
    ],
)
def test_bad_settings_are_named(
    tmp_path: Path, changes: dict[str, object], error: type[Exception], named: str
) -> None:
    checkpoint = checkpoint_with(tmp_path / "checkpoint", made_quantizer(), **changes)
    with pytest.raises(error, match=named):
        export(checkpoint, tmp_path / "out", "fp32", texts=TEXTS, n_recorded=1)


def test_unknown_settings_of_a_representation_are_refused_at_a_build(tmp_path: Path) -> None:
    changes = {"representation_settings": {"more": 3}}
    checkpoint = checkpoint_with(tmp_path / "checkpoint", made_quantizer(), **changes)
    export(checkpoint, tmp_path / "bundle", "fp32", texts=TEXTS, n_recorded=1)
    with pytest.raises(InvalidSetting, match="more"):
        engine.build(["abc"], tmp_path / "index", encoder=tmp_path / "bundle", progress=False)


def test_a_separate_encoder_of_queries_is_found_in_the_checkpoint(tmp_path: Path) -> None:
    checkpoint = checkpoint_with(tmp_path / "checkpoint", made_quantizer(), query_checkpoint="queries")
    from support.models.tiny_checkpoint import random_weights

    write_checkpoint(checkpoint / "queries", weights=random_weights(7))
    settings = {name: value for name, value in SETTINGS.items() if name != "representation_settings"}
    (checkpoint / "queries" / "quarry.json").write_text(json.dumps(settings), "utf-8")
    bundle = export(checkpoint, tmp_path / "bundle", "fp32", texts=TEXTS, n_recorded=1)
    assert bundle.settings.query_source is not None
    encoder = open_encoder(bundle.path)
    (window,) = encoder.windows("abc")
    assert not np.allclose(encoder.encode_query("abc"), window.pooled, atol=1e-2)


@pytest.mark.parametrize("options", [{"head": "cls"}, {"normalize": False}])
def test_another_head_than_the_quantizers_is_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    checkpoint = checkpoint_with(tmp_path / "checkpoint", made_quantizer())
    with pytest.raises(InvalidSetting, match="its own head"):
        export(checkpoint, tmp_path / "bundle", "fp32", **options)


def test_a_damaged_quantizer_is_named(bundle: EncoderBundle, tmp_path: Path) -> None:
    checkpoint = checkpoint_with(tmp_path / "checkpoint", made_quantizer(5))
    (path,) = checkpoint.glob("*.quant")
    content = bytearray(path.read_bytes())
    content[200] ^= 1
    path.write_bytes(content)
    with pytest.raises(FormatError, match=path.name):
        export(checkpoint, tmp_path / "bundle", "fp32")
    with pytest.raises(FileNotFoundError):
        open_quantizer(Directory(checkpoint), "0" * 32 + ".quant")
