"""Turns a trained checkpoint into an encoder bundle."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from engine.encoder import open_encoder
from exporters.checkpoint import Checkpoint, read_checkpoint
from exporters.parity import check_parity, measure_parity
from exporters.sample_texts import sample_texts
from formats.encoder_bundle import EncoderBundle, EncoderSettings, ParityRecord, write_bundle
from formats.errors import InvalidSetting

if TYPE_CHECKING:
    import onnx

__all__ = ["PRECISIONS", "export"]

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
    """Convert a checkpoint into a bundle; the same input gives the same bytes.

    Args:
        checkpoint: a Hugging Face or sentence-transformers folder of the BERT family.
        out: the folder to make.
        precision: ``int8`` (small and fast on CPUs) or ``fp32`` (exact).
        name: the encoder's name, None for that of the checkpoint's folder.
        texts: what an int8 graph is compared with fp32 on, None for docstrings of the standard library.
        extra_files: files to put into the bundle, beside licences found in the checkpoint, by name.

    Raises:
        InvalidSetting: the checkpoint or the precision cannot be exported, the folder exists, or the int8
            graph is too far from fp32: the message has the largest difference and the text that showed it.
        CorruptFile: a file of the checkpoint does not hold what it should.
    """
    if precision not in PRECISIONS:
        raise InvalidSetting("unknown precision", expected=" or ".join(PRECISIONS), actual=precision)
    if Path(out).exists():
        raise InvalidSetting("there is something at the path already; an export needs a new folder", path=out)
    source = read_checkpoint(checkpoint)
    settings = _settings(source, precision, name or source.path.resolve().name)
    files = {"tokenizer.json": source.tokenizer, **_licences(source.path), **(extra_files or {})}
    graph = _fp32_graph(source)
    if precision == "int8":
        exact = _serialised(graph)
        graph = _int8_graph(graph)
        files["model.onnx"] = _serialised(graph)
        parity = _parity(settings, files, exact, sample_texts() if texts is None else texts)
        return write_bundle(out, replace(settings, parity=parity), files)
    return write_bundle(out, settings, {**files, "model.onnx": _serialised(graph)})


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


def _licences(folder: Path) -> dict[str, bytes | Path]:
    return {name: folder / name for name in _LICENCE_NAMES if (folder / name).is_file()}


def _fp32_graph(source: Checkpoint) -> onnx.ModelProto:
    from exporters.bert_graph import build_bert_graph

    return build_bert_graph(source)


def _int8_graph(graph: onnx.ModelProto) -> onnx.ModelProto:
    from exporters.quantize import quantize_int8

    return quantize_int8(graph)


def _serialised(graph: onnx.ModelProto) -> bytes:
    return bytes(graph.SerializeToString(deterministic=True))


def _parity(settings: EncoderSettings, files: Files, exact_graph: bytes, texts: Iterable[str]) -> ParityRecord:
    """Write both variants into a temporary folder, run them and judge."""
    with tempfile.TemporaryDirectory() as folder:
        graphs = {"variant": files["model.onnx"], "exact": exact_graph}
        variant, exact = (
            open_encoder(write_bundle(Path(folder) / name, settings, {**files, "model.onnx": graph}).path)
            for name, graph in graphs.items()
        )
        record, worst_text = measure_parity(exact, variant, texts)
    check_parity(record, worst_text)
    return record
