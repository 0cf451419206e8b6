"""Exports a trained checkpoint, an encoder or a reranker, as a bundle."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from quarry.engine.encoding.opening import open_encoder
from quarry.engine.process.libraries import requiring
from quarry.engine.search.reranker import open_reranker
from quarry.exporters.checkpoint.checkpoint import (
    Checkpoint,
    quantizer_file,
    read_checkpoint,
    read_network,
    read_reranker,
)
from quarry.exporters.checkpoint.files import find_checkpoint_folder, find_license_files, subfolder
from quarry.exporters.graph.sources import GRAPH_SOURCES, GraphSource, open_graph_source
from quarry.exporters.parity.encoder import check_parity, measure_parity, measure_retrieval, record_reference
from quarry.exporters.parity.reranker import check_reranker_parity, measure_reranker_parity, record_scores
from quarry.exporters.parity.sample_texts import sample_pairs, sample_texts
from quarry.formats.bundle.encoder import EncoderBundle, EncoderSettings, Pooling, write_bundle
from quarry.formats.bundle.folder import (
    DATA_SUFFIX,
    MODEL_NAME,
    QUERY_MODEL_NAME,
    REFERENCE_NAME,
    TOKENIZER_NAME,
)
from quarry.formats.bundle.reranker import RerankerBundle, RerankerSettings, write_reranker_bundle
from quarry.formats.errors import CorruptFile, FormatError, InvalidSetting

if TYPE_CHECKING:
    import onnx

__all__ = ["PRECISIONS", "export", "export_reranker"]

PRECISIONS = ("int8", "fp32", "fp16", "int8-weights")

_N_TEXTS = 50  # that parity is measured with if none are given

_POOLINGS = tuple(each for each in get_args(Pooling) if each != "aggretriever")

Files = Mapping[str, bytes | Path]


def export(  # noqa: PLR0913 - all but three are keywords with defaults
    checkpoint: str | Path,
    out: str | Path,
    precision: str = "int8",
    *,
    name: str | None = None,
    head: Pooling | None = None,
    normalize: bool | None = None,
    query_checkpoint: str | Path | None = None,
    graph_source: str = "auto",
    texts: Iterable[str] | None = None,
    retrieval: bool = True,
    extra_files: Files | None = None,
    n_recorded: int = 8,
    packed_tables: bool = False,
    multilingual: bool = False,
) -> EncoderBundle:
    """Export the checkpoint of an encoder; the same input gives the same bytes on the same machine.

    The exported graph is run and compared with the fp32 graph of the same weights, and the vectors of a few texts
    are recorded, so that a bundle can be checked on any machine.

    Args:
        checkpoint: a Hugging Face or sentence-transformers folder (docs/encoders.md); or ``owner/name`` on the
            Hugging Face hub, if it can be reached.
        out: the folder to create.
        precision: ``int8`` (small and fast on CPUs), ``fp32`` (exact), ``fp16`` (for GPUs) or ``int8-weights``
            (small, close to fp32, independent of the batch).
        name: the encoder's name; None: the ``model_name`` of the checkpoint's README.md, or its folder's name.
        head: pooling (``mean``, ``weightedmean``, ``cls``, ``lasttoken``, ``max``) in place of the checkpoint's
            own, without linear layers.
        normalize: whether pooled vectors are scaled to L2 norm 1; None: as the checkpoint says.
        query_checkpoint: folder of a separate encoder for queries, if the model has one; None: the one that the
            checkpoint names, if it does.
        graph_source: ``direct`` (built from the weights), ``torch`` (traced), or ``auto``: direct if possible.
        texts: texts on which the graph is compared with fp32; None: docstrings of the standard library.
        retrieval: whether to measure the effect of the precision on a ranking.
        extra_files: contents or paths by name, added to the bundle beside the licenses found in the checkpoint.
        n_recorded: number of texts whose vectors are recorded, about 40 KB each for 384 dimensions.
        packed_tables: whether vectors of tokens have 4 bits, in a file of their own, for large vocabularies; not
            with fp16.
        multilingual: whether the encoder is for texts of many languages: indexes then find the language of each
            document, unless they are given one.

    Raises:
        InvalidSetting: the checkpoint or an option is not supported, the checkpoint is a reranker, the folder
            exists, or the graph differs too much from fp32: the message has the largest difference and its text.
        BackendUnavailable: onnx, safetensors, or for some networks torch is not installed.
        CorruptFile: a file of the checkpoint is not valid.
    """
    _check_choice("head", head, _POOLINGS)
    _check_choice("graph_source", graph_source, GRAPH_SOURCES)
    _check_request(out, precision)
    first = read_checkpoint(find_checkpoint_folder(checkpoint), head, normalize)
    checkpoints = {MODEL_NAME: first}
    queries = _query_folder(first) if query_checkpoint is None else find_checkpoint_folder(query_checkpoint)
    if queries is not None:
        checkpoints[QUERY_MODEL_NAME] = read_checkpoint(queries, head, normalize)
        _check_same_use(first, checkpoints[QUERY_MODEL_NAME])
    networks = {key: open_graph_source(each, graph_source) for key, each in checkpoints.items()}
    settings = _make_encoder_settings(checkpoints, networks[MODEL_NAME].n_hidden, precision, name or first.name)
    settings = replace(settings, multilingual=multilingual)
    files = {TOKENIZER_NAME: first.tokenizer, **find_license_files(first.path), **(extra_files or {})}
    if first.encoder_use.quantizer is not None and not (head is None and normalize is None):
        raise InvalidSetting(
            "the checkpoint's quantizer is for vectors of its own head", path=first.path, expected="no other head"
        )
    files |= quantizer_file(first)
    exact, variant = _build_graphs(checkpoints, networks, precision, packed_tables)
    listed = list(sample_texts(_N_TEXTS) if texts is None else texts)
    with _workspace(first.path) as folder:
        bundle = write_bundle(folder / "exact", settings, {**files, **exact})
        reference = record_reference(open_encoder(bundle.path), listed, n_recorded)
        if variant != exact:
            converted = write_bundle(folder / "variant", settings, {**files, **variant})
            settings = _add_parity(bundle, converted, listed, retrieval)
    return write_bundle(out, settings, {**files, **variant, REFERENCE_NAME: reference})


def export_reranker(
    checkpoint: str | Path,
    out: str | Path,
    precision: str = "int8",
    *,
    name: str | None = None,
    pairs: Iterable[tuple[str, str]] | None = None,
) -> RerankerBundle:
    """Export the checkpoint of a cross-encoder; the same input gives the same bytes on the same machine.

    The exported graph is run and compared with the fp32 graph of the same weights, and the scores of a few pairs
    are recorded, so that a bundle can be checked on any machine.

    The bundle's scores are the classifier's logits: the activation function that the checkpoint's library applies
    to them does not change their order.

    Args:
        checkpoint: a Hugging Face folder of the BERT family whose architecture is a sequence classifier with one
            label, such as sentence-transformers' cross-encoders for MS MARCO.
        out: the folder to create.
        precision: see `export`.
        name: the reranker's name; None: the ``model_name`` of the checkpoint's README.md, or its folder's name.
        pairs: (query, text) pairs on which the graph is compared with fp32; None: docstrings of the standard
            library.

    Raises:
        InvalidSetting: the checkpoint or the precision is not supported, the checkpoint is not a reranker, the
            folder exists, or the graph differs too much from fp32: the message has the largest difference and its
            pair.
        BackendUnavailable: onnx or safetensors is not installed.
        CorruptFile: a file of the checkpoint is not valid.
    """
    from quarry.exporters.graph.bert import build_reranker_graph
    from quarry.exporters.precision.variants import convert_reranker

    _check_request(out, precision)
    source = read_reranker(find_checkpoint_folder(checkpoint))
    settings = _make_reranker_settings(source, precision, name or source.name)
    files = {TOKENIZER_NAME: source.tokenizer, **find_license_files(source.path)}
    graph = build_reranker_graph(read_network(source, ("bert",)))
    variant = {**files, MODEL_NAME: _serialize(convert_reranker(graph, precision))}
    listed = list(sample_pairs() if pairs is None else pairs)
    with _workspace(source.path) as folder:
        exact = write_reranker_bundle(folder / "exact", settings, {**files, MODEL_NAME: _serialize(graph)})
        reference = record_scores(open_reranker(exact.path), listed)
        if precision != "fp32":
            converted = write_reranker_bundle(folder / "variant", settings, variant)
            settings = _add_reranker_parity(exact, converted, listed)
    return write_reranker_bundle(out, settings, {**variant, REFERENCE_NAME: reference})


def _check_request(out: str | Path, precision: str) -> None:
    _check_choice("precision", precision, PRECISIONS)
    if Path(out).exists():
        raise InvalidSetting("the path exists already; an export creates a new folder", path=out)
    parent = next(each for each in Path(out).absolute().parents if each.exists())
    if not parent.is_dir() or not os.access(
        parent, os.W_OK
    ):  # found out before the export, which may take minutes
        raise InvalidSetting(
            "the folder cannot be created here", path=out, expected="a writable folder", actual=parent
        )
    with requiring("exporting needs libraries that are not installed", "'.[export]' in a checkout of Quarry"):
        import onnx  # noqa: F401
        import safetensors  # noqa: F401


def _check_choice(name: str, value: str | None, choices: tuple[str, ...]) -> None:
    if value is not None and value not in choices:
        raise InvalidSetting(f"unknown {name}", expected=" or ".join(choices), actual=value)


def _check_same_use(documents: Checkpoint, queries: Checkpoint) -> None:
    """Refuse two encoders that cannot be one bundle."""
    if queries.tokenizer != documents.tokenizer:
        raise InvalidSetting("queries and documents have different tokenizers", path=queries.path)
    if _same_use(queries) != _same_use(documents):
        raise InvalidSetting("queries and documents have different heads", path=queries.path)


def _same_use(checkpoint: Checkpoint) -> tuple[object, ...]:
    head, use = checkpoint.head, checkpoint.encoder_use
    return head.pooling, head.normalize, use.include_prompt


def _query_folder(checkpoint: Checkpoint) -> Path | None:
    """Return the folder of the query encoder that a checkpoint names, or None."""
    name = checkpoint.encoder_use.query_checkpoint
    return None if name is None else subfolder(checkpoint.path, name)


def _build_graphs(
    checkpoints: Mapping[str, Checkpoint], networks: Mapping[str, GraphSource], precision: str, packed: bool
) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Return the fp32 graphs and the graphs in the requested precision, serialized, by file name."""
    from quarry.exporters.precision.variants import convert_encoder

    exact: dict[str, bytes] = {}
    variant: dict[str, bytes] = {}
    for name, checkpoint in checkpoints.items():
        build = networks[name].build
        backbone = build()
        checkpoint.head.check(backbone.n_hidden, backbone.n_words, checkpoint.path)
        exact[name] = _serialize(convert_encoder(backbone, checkpoint.head, "fp32"))
        if precision == "fp32" and not packed:
            variant[name] = exact[name]
        else:
            graph = convert_encoder(build(), checkpoint.head, precision, packed)
            variant |= _move_tables(graph, name) if packed else {name: _serialize(graph)}
    return exact, variant


def _make_encoder_settings(
    checkpoints: Mapping[str, Checkpoint], n_hidden: int, precision: str, name: str
) -> EncoderSettings:
    documents = checkpoints[MODEL_NAME]
    queries = checkpoints.get(QUERY_MODEL_NAME, documents)
    use, head = documents.encoder_use, documents.head
    return EncoderSettings(
        name=name,
        precision=precision,
        dim=head.dim(n_hidden),
        window=min(documents.window, queries.window),
        pooling=head.pooling,
        normalize=head.normalize,
        query_prefix=queries.encoder_use.query_prefix,
        include_prompt=use.include_prompt,
        cut_queries=use.cut_queries,
        document_prefix=use.document_prefix,
        beta=use.beta,
        trained_representation=use.representation,
        source=documents.source,
        license=documents.license_name,
        parity=None,
        projection=head.digest(),
        token_vectors=head.has_token_vectors,
        query_source=None if queries is documents else queries.source,
        representation_settings=use.representation_settings,
        quantizer=use.quantizer,
    )


@contextmanager
def _workspace(checkpoint: Path) -> Iterator[Path]:
    """Create a temporary folder and delete it at the end (on Windows, mapped weights may prevent that).

    Errors in bundles inside it are raised as errors in the checkpoint that they were made of.
    """
    with tempfile.TemporaryDirectory(prefix="quarry-export-", ignore_cleanup_errors=True) as folder:
        try:
            yield Path(folder)
        except FormatError as error:
            if error.path is None or Path(folder) not in error.path.parents:
                raise
            message = f"the checkpoint gives a bundle that cannot be used: {error.path.name}: {error.message}"
            raise CorruptFile(message, path=checkpoint, expected=error.expected, actual=error.actual) from error


def _add_parity(
    exact: EncoderBundle, variant: EncoderBundle, texts: Iterable[str], retrieval: bool
) -> EncoderSettings:
    """Compare two variants and return the settings with the result."""
    settings, original, converted = variant.settings, open_encoder(exact.path), open_encoder(variant.path)
    parity, worst = measure_parity(original, converted, texts)
    check_parity(parity, worst, settings.precision)
    effect = measure_retrieval(original, converted) if retrieval else None
    return replace(settings, parity=parity, retrieval=effect)


def _make_reranker_settings(source: Checkpoint, precision: str, name: str) -> RerankerSettings:
    return RerankerSettings(
        name=name,
        precision=precision,
        window=source.window,
        source=source.source,
        license=source.license_name,
        parity=None,
    )


def _serialize(graph: onnx.ModelProto) -> bytes:
    return bytes(graph.SerializeToString(deterministic=True))


def _move_tables(graph: onnx.ModelProto, name: str) -> dict[str, bytes]:
    """Return the files of a graph whose tables of bytes, such as packed ones, are in a file of their own."""
    from onnx import TensorProto

    data = b""
    for tensor in graph.graph.initializer:
        if tensor.data_type == TensorProto.UINT8 and len(tensor.dims) == 2:
            place = {"location": name + DATA_SUFFIX, "offset": len(data), "length": len(tensor.raw_data)}
            data += tensor.raw_data
            tensor.ClearField("raw_data")
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in place.items():
                tensor.external_data.add(key=key, value=str(value))
    return {name: _serialize(graph), name + DATA_SUFFIX: data}


def _add_reranker_parity(
    exact: RerankerBundle, variant: RerankerBundle, pairs: list[tuple[str, str]]
) -> RerankerSettings:
    """Compare two variants and return the settings with the result."""
    one, other = (open_reranker(bundle.path) for bundle in (exact, variant))
    parity, worst_pair = measure_reranker_parity(one, other, pairs)
    check_reranker_parity(parity, worst_pair, variant.settings.precision)
    return replace(variant.settings, parity=parity)
