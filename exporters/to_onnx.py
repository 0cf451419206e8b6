"""Turns a trained checkpoint into a bundle."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from engine.encoder import open_encoder
from engine.reranker import open_reranker
from exporters.checkpoint import Checkpoint, Network, read_checkpoint, read_reranker
from exporters.parity import check_parity, measure_parity
from exporters.reranker_parity import check_reranker_parity, measure_reranker_parity
from exporters.sample_texts import sample_pairs, sample_texts
from formats.bundle_folder import MODEL_NAME, TOKENIZER_NAME
from formats.encoder_bundle import EncoderBundle, EncoderSettings, ParityRecord, write_bundle
from formats.errors import InvalidSetting
from formats.reranker_bundle import RerankerBundle, RerankerParity, RerankerSettings, write_reranker_bundle

if TYPE_CHECKING:
    import onnx

__all__ = ["PRECISIONS", "export", "export_reranker"]

PRECISIONS = ("int8", "fp32")

_LICENCE_NAMES = ("LICENSE", "LICENSE.txt", "LICENSE.md", "NOTICE", "NOTICE.txt")

Files = Mapping[str, bytes | Path]


def export(
    checkpoint: str | Path,
    out: str | Path,
    precision: str = "int8",
    *,
    name: str | None = None,
    texts: Iterable[str] | None = None,
    extra_files: Files | None = None,
) -> EncoderBundle:
    """Convert an encoder's checkpoint into a bundle; the same input gives the same bytes.

    Args:
        checkpoint: a Hugging Face or sentence-transformers folder of the BERT family.
        out: the folder to make.
        precision: ``int8`` (small and fast on CPUs) or ``fp32`` (exact).
        name: the encoder's name, None for that of the checkpoint's folder.
        texts: what an int8 graph is compared with fp32 on, None for docstrings of the standard library.
        extra_files: files to put into the bundle, beside licences found in the checkpoint, by name.

    Raises:
        InvalidSetting: the checkpoint or the precision cannot be exported, it is a reranker, the folder exists,
            or the int8 graph is too far from fp32: the message has the largest difference and the text that
            showed it.
        CorruptFile: a file of the checkpoint does not hold what it should.
    """
    from exporters.bert_graph import build_bert_graph

    _check_request(out, precision)
    source = read_checkpoint(checkpoint)
    settings = _settings(source, precision, name or source.path.resolve().name)
    files = {TOKENIZER_NAME: source.tokenizer, **_licences(source.path), **(extra_files or {})}
    graph = build_bert_graph(source)
    if precision == "int8":
        files[MODEL_NAME] = _int8(graph)
        parity = _parity(settings, files, graph, sample_texts() if texts is None else texts)
        return write_bundle(out, replace(settings, parity=parity), files)
    return write_bundle(out, settings, {**files, MODEL_NAME: _serialised(graph)})


def export_reranker(
    checkpoint: str | Path,
    out: str | Path,
    precision: str = "int8",
    *,
    name: str | None = None,
    pairs: Iterable[tuple[str, str]] | None = None,
) -> RerankerBundle:
    """Convert a cross-encoder's checkpoint into a bundle; the same input gives the same bytes.

    The bundle's scores are the classifier's raw logits: an activation that the checkpoint's library would put over
    them changes no order.

    Args:
        checkpoint: a Hugging Face folder of the BERT family whose architecture is a sequence classifier with one
            label, such as sentence-transformers' cross-encoders for MS MARCO.
        out: the folder to make.
        precision: ``int8`` (small and fast on CPUs) or ``fp32`` (exact).
        name: the reranker's name, None for that of the checkpoint's folder.
        pairs: (query, text) pairs that an int8 graph is compared with fp32 on, None for `sample_pairs`.

    Raises:
        InvalidSetting: the checkpoint or the precision cannot be exported, it is no reranker, the folder exists,
            or the int8 graph is too far from fp32: the message has the largest difference and the pair that
            showed it.
        CorruptFile: a file of the checkpoint does not hold what it should.
    """
    from exporters.bert_graph import build_reranker_graph

    _check_request(out, precision)
    source = read_reranker(checkpoint)
    settings = _reranker_settings(source, precision, name or source.path.resolve().name)
    files: dict[str, bytes | Path] = {TOKENIZER_NAME: source.tokenizer, **_licences(source.path)}
    graph = build_reranker_graph(source)
    if precision == "int8":
        files[MODEL_NAME] = _int8(graph)
        parity = _reranker_parity(settings, files, graph, sample_pairs() if pairs is None else pairs)
        return write_reranker_bundle(out, replace(settings, parity=parity), files)
    return write_reranker_bundle(out, settings, {**files, MODEL_NAME: _serialised(graph)})


def _check_request(out: str | Path, precision: str) -> None:
    if precision not in PRECISIONS:
        raise InvalidSetting("unknown precision", expected=" or ".join(PRECISIONS), actual=precision)
    if Path(out).exists():
        raise InvalidSetting("there is something at the path already; an export needs a new folder", path=out)


def _settings(source: Checkpoint, precision: str, name: str) -> EncoderSettings:
    return EncoderSettings(
        name=name,
        precision=precision,
        dim=source.shape.dim,
        window=source.window,
        pooling=source.pooling,
        normalise=source.normalise,
        query_prefix=source.query_prefix,
        document_prefix=source.document_prefix,
        beta=None,
        trained_representation=None,
        source=source.source,
        licence=source.licence,
        parity=None,
    )


def _reranker_settings(source: Network, precision: str, name: str) -> RerankerSettings:
    return RerankerSettings(
        name=name,
        precision=precision,
        window=source.window,
        source=source.source,
        licence=source.licence,
        parity=None,
    )


def _licences(folder: Path) -> dict[str, bytes | Path]:
    return {name: folder / name for name in _LICENCE_NAMES if (folder / name).is_file()}


def _int8(graph: onnx.ModelProto) -> bytes:
    from exporters.quantize import quantize_int8

    return _serialised(quantize_int8(graph))


def _serialised(graph: onnx.ModelProto) -> bytes:
    return bytes(graph.SerializeToString(deterministic=True))


@contextmanager
def _both_variants(files: Files, exact: onnx.ModelProto) -> Iterator[list[tuple[Path, Files]]]:
    """Name two folders to write bundles into for a while: for the fp32 graph, and for the files as they are."""
    with tempfile.TemporaryDirectory() as folder:
        contents = {"exact": {**files, MODEL_NAME: _serialised(exact)}, "variant": files}
        yield [(Path(folder) / name, content) for name, content in contents.items()]


def _parity(settings: EncoderSettings, files: Files, graph: onnx.ModelProto, texts: Iterable[str]) -> ParityRecord:
    """Write both variants into a temporary folder, run them and judge."""
    with _both_variants(files, graph) as variants:
        exact, variant = (open_encoder(write_bundle(path, settings, content).path) for path, content in variants)
        record, worst_text = measure_parity(exact, variant, texts)
    check_parity(record, worst_text)
    return record


def _reranker_parity(
    settings: RerankerSettings, files: Files, graph: onnx.ModelProto, pairs: Iterable[tuple[str, str]]
) -> RerankerParity:
    """Write both variants into a temporary folder, run them and judge."""
    with _both_variants(files, graph) as variants:
        exact, variant = (
            open_reranker(write_reranker_bundle(path, settings, content).path) for path, content in variants
        )
        record, worst_pair = measure_reranker_parity(exact, variant, pairs)
    check_reranker_parity(record, worst_pair)
    return record
