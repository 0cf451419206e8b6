"""Turns a trained checkpoint into a bundle."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from quarry.engine.encoding.encoder import open_encoder
from quarry.engine.search.reranker import open_reranker
from quarry.exporters.checkpoint.checkpoint import Checkpoint, read_checkpoint, read_network, read_reranker
from quarry.exporters.checkpoint.files import licence_files
from quarry.exporters.checkpoint.hub import checkpoint_folder
from quarry.exporters.graph.sources import ROADS, Road, open_road
from quarry.exporters.parity.encoder import check_parity, measure_parity
from quarry.exporters.parity.encoder_reference import record_reference
from quarry.exporters.parity.reranker import check_reranker_parity, measure_reranker_parity
from quarry.exporters.parity.reranker_reference import record_scores
from quarry.exporters.parity.retrieval import measure_retrieval
from quarry.exporters.parity.sample_texts import sample_pairs, sample_texts
from quarry.formats.bundle.encoder import EncoderBundle, EncoderSettings, Pooling, write_bundle
from quarry.formats.bundle.folder import MODEL_NAME, QUERY_MODEL_NAME, REFERENCE_NAME, TOKENIZER_NAME
from quarry.formats.bundle.reranker import RerankerBundle, RerankerSettings, write_reranker_bundle
from quarry.formats.errors import BackendUnavailable, CorruptFile, FormatError, InvalidSetting

if TYPE_CHECKING:
    import onnx

__all__ = ["PRECISIONS", "ExportOptions", "export", "export_reranker"]

PRECISIONS = ("int8", "fp32", "fp16", "int8-weights")

_N_TEXTS = 50

Files = Mapping[str, bytes | Path]


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """How an encoder is exported.

    Attributes:
        name: the encoder's name, None for that of the checkpoint's folder.
        head: pooling (``mean``, ``cls``, ``max``) instead of what the checkpoint says, without linear layers.
        normalise: whether vectors get L2 norm 1, None for what the checkpoint says.
        query_checkpoint: folder of the encoder for queries, where documents and queries were trained apart.
        road: ``direct`` (built from the weights), ``torch`` (traced by it), or ``auto``: direct where it can be.
        texts: what the graph is compared with fp32 on, None for docstrings of the standard library.
        retrieval: whether to measure what the precision does to a ranking.
        extra_files: files to put into the bundle, beside licences found in the checkpoint, by name.
        n_recorded: of how many texts vectors are recorded, some 40 KB each for vectors of length 384.
    """

    name: str | None = None
    head: Pooling | None = None
    normalise: bool | None = None
    query_checkpoint: str | Path | None = None
    road: str = "auto"
    texts: Iterable[str] | None = None
    retrieval: bool = True
    extra_files: Files = field(default_factory=dict)
    n_recorded: int = 8

    def __post_init__(self) -> None:
        for name, value, known in (("head", self.head, ("mean", "cls", "max")), ("road", self.road, ROADS)):
            if value is not None and value not in known:
                raise InvalidSetting(f"unknown {name}", expected=" or ".join(known), actual=value)


def export(checkpoint: str | Path, out: str | Path, precision: str = "int8", **options: object) -> EncoderBundle:
    """Convert an encoder's checkpoint into a bundle; the same input gives the same bytes on the same machine.

    The exported graph is run and compared with the fp32 graph of the same weights, and the vectors of a few texts
    are recorded for `quarry.exporters.parity.encoder_reference.check_bundle`.

    Args:
        checkpoint: a Hugging Face or sentence-transformers folder, see
            `quarry.exporters.checkpoint.checkpoint.read_checkpoint` and
            `quarry.exporters.checkpoint.head_reader`; or ``owner/name`` of the Hugging Face hub, where that can
            be reached.
        out: the folder to make.
        precision: ``int8`` (small and fast on CPUs), ``fp32`` (exact), ``fp16`` (for GPUs) or ``int8-weights``
            (small, close to fp32, any batch).
        **options: fields of `ExportOptions`.

    Raises:
        InvalidSetting: the checkpoint or the precision cannot be exported, it is a reranker, the folder exists,
            or the graph is too far from fp32: the message has the largest difference and the text that showed it.
        BackendUnavailable: onnx, safetensors, or for some networks torch is not installed.
        CorruptFile: a file of the checkpoint does not hold what it should.
    """
    chosen = ExportOptions(**options)  # type: ignore[arg-type]
    _check_request(out, precision)
    sources = _sources(checkpoint, chosen)
    first = sources[MODEL_NAME]
    roads = {name: open_road(source, chosen.road) for name, source in sources.items()}
    name = chosen.name or first.path.resolve().name
    settings = _settings(sources, roads[MODEL_NAME].n_hidden, precision, name)
    files = {TOKENIZER_NAME: first.tokenizer, **licence_files(first.path), **chosen.extra_files}
    exact, variant = _graphs(sources, roads, precision)
    texts = list(sample_texts(_N_TEXTS) if chosen.texts is None else chosen.texts)
    with _workspace(first.path) as folder:
        bundle = write_bundle(folder / "exact", settings, {**files, **exact})
        reference = record_reference(open_encoder(bundle.path), texts, chosen.n_recorded)
        if precision != "fp32":
            converted = write_bundle(folder / "variant", settings, {**files, **variant})
            settings = _judged(bundle, converted, texts, chosen.retrieval)
    return write_bundle(out, settings, {**files, **variant, REFERENCE_NAME: reference})


def export_reranker(
    checkpoint: str | Path,
    out: str | Path,
    precision: str = "int8",
    *,
    name: str | None = None,
    pairs: Iterable[tuple[str, str]] | None = None,
) -> RerankerBundle:
    """Convert a cross-encoder's checkpoint into a bundle; the same input gives the same bytes.

    The exported graph is run and compared with the fp32 graph of the same weights, and the scores of a few pairs
    are recorded for `quarry.exporters.parity.reranker_reference.check_reranker_bundle`.

    The bundle's scores are the classifier's raw logits: an activation that the checkpoint's library would put over
    them changes no order.

    Args:
        checkpoint: a Hugging Face folder of the BERT family whose architecture is a sequence classifier with one
            label, such as sentence-transformers' cross-encoders for MS MARCO.
        out: the folder to make.
        precision: as of `export`.
        name: the reranker's name, None for that of the checkpoint's folder.
        pairs: (query, text) pairs that the graph is compared with fp32 on, None for `sample_pairs`.

    Raises:
        InvalidSetting: the checkpoint or the precision cannot be exported, it is no reranker, the folder exists,
            or the graph is too far from fp32: the message has the largest difference and the pair that showed it.
        BackendUnavailable: onnx or safetensors is not installed.
        CorruptFile: a file of the checkpoint does not hold what it should.
    """
    from quarry.exporters.graph.bert import build_reranker_graph
    from quarry.exporters.precision.variants import reranker_variant

    _check_request(out, precision)
    source = read_reranker(checkpoint_folder(checkpoint))
    settings = _reranker_settings(source, precision, name or source.path.resolve().name)
    files = {TOKENIZER_NAME: source.tokenizer, **licence_files(source.path)}
    graph = build_reranker_graph(read_network(source, ("bert",)))
    variant = {**files, MODEL_NAME: _serialised(reranker_variant(graph, precision))}
    listed = list(sample_pairs() if pairs is None else pairs)
    with _workspace(source.path) as folder:
        exact = write_reranker_bundle(folder / "exact", settings, {**files, MODEL_NAME: _serialised(graph)})
        reference = record_scores(open_reranker(exact.path), listed)
        if precision != "fp32":
            converted = write_reranker_bundle(folder / "variant", settings, variant)
            settings = _judged_reranker(exact, converted, listed)
    return write_reranker_bundle(out, settings, {**variant, REFERENCE_NAME: reference})


def _check_request(out: str | Path, precision: str) -> None:
    if precision not in PRECISIONS:
        raise InvalidSetting("unknown precision", expected=" or ".join(PRECISIONS), actual=precision)
    if Path(out).exists():
        raise InvalidSetting("there is something at the path already; an export needs a new folder", path=out)
    parent = next(each for each in Path(out).absolute().parents if each.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK):  # better now than after minutes
        raise InvalidSetting(
            "nothing can be written there", path=out, expected="a folder to write to", actual=parent
        )
    try:
        import onnx  # noqa: F401
        import safetensors  # noqa: F401
    except ImportError as error:
        raise BackendUnavailable(
            "exporting needs libraries that are not installed",
            expected="pip install 'quarry-search[export]'",
            actual=str(error),
        ) from error


def _sources(checkpoint: str | Path, options: ExportOptions) -> dict[str, Checkpoint]:
    """Read the one or two networks of an encoder, by the name of their graph."""
    sources = {MODEL_NAME: read_checkpoint(checkpoint_folder(checkpoint), options.head, options.normalise)}
    if options.query_checkpoint is not None:
        query = read_checkpoint(checkpoint_folder(options.query_checkpoint), options.head, options.normalise)
        if query.tokenizer != sources[MODEL_NAME].tokenizer:
            raise InvalidSetting("queries and documents have different tokenizers", path=query.path)
        sources[QUERY_MODEL_NAME] = query
    return sources


def _graphs(
    sources: Mapping[str, Checkpoint], roads: Mapping[str, Road], precision: str
) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Make the files of the fp32 graphs and of those in the precision asked for, by name."""
    from quarry.exporters.precision.variants import encoder_variant

    exact: dict[str, bytes] = {}
    variant: dict[str, bytes] = {}
    for name, source in sources.items():
        backbone = roads[name].backbone
        network = backbone()
        source.head.check(network.n_hidden, network.n_words, source.path)
        graph = encoder_variant(network, source.head, "fp32")
        exact[name] = variant[name] = _serialised(graph)
        if precision != "fp32":
            variant[name] = _serialised(encoder_variant(backbone(), source.head, precision))
    return exact, variant


def _settings(sources: Mapping[str, Checkpoint], n_hidden: int, precision: str, name: str) -> EncoderSettings:
    source = sources[MODEL_NAME]
    use, query = source.encoder_use, sources.get(QUERY_MODEL_NAME, source)
    head = source.head
    if query.head.pooling != head.pooling or query.head.normalise != head.normalise:
        raise InvalidSetting("queries and documents have different heads", path=query.path)
    return EncoderSettings(
        name=name,
        precision=precision,
        dim=head.dim(n_hidden),
        window=min(source.window, query.window),
        pooling=head.pooling,
        normalize=head.normalise,
        query_prefix=query.encoder_use.query_prefix,
        document_prefix=use.document_prefix,
        beta=use.beta,
        trained_representation=use.representation,
        source=source.source,
        license=source.licence,
        parity=None,
        projection=head.digest(),
        token_vectors=head.token_vectors,
        query_source=None if query is source else query.source,
    )


@contextmanager
def _workspace(checkpoint: Path) -> Iterator[Path]:
    """A folder that is gone in the end, where the system lets go of it: mapped weights keep it on Windows.

    Errors about bundles in it become errors about the checkpoint that they were made of.
    """
    with tempfile.TemporaryDirectory(prefix="quarry-export-", ignore_cleanup_errors=True) as folder:
        try:
            yield Path(folder)
        except FormatError as error:
            if error.path is None or Path(folder) not in error.path.parents:
                raise
            message = f"what was made of the checkpoint cannot be used: {error.path.name}: {error.message}"
            raise CorruptFile(message, path=checkpoint, expected=error.expected, actual=error.actual) from error


def _judged(
    exact: EncoderBundle, variant: EncoderBundle, texts: Iterable[str], retrieval: bool
) -> EncoderSettings:
    """Compare two variants; the settings with how close they are."""
    settings, original, converted = variant.settings, open_encoder(exact.path), open_encoder(variant.path)
    parity, worst = measure_parity(original, converted, texts)
    check_parity(parity, worst, settings.precision)
    effect = measure_retrieval(original, converted) if retrieval else None
    return replace(settings, parity=parity, retrieval=effect)


def _reranker_settings(source: Checkpoint, precision: str, name: str) -> RerankerSettings:
    return RerankerSettings(
        name=name,
        precision=precision,
        window=source.window,
        source=source.source,
        license=source.licence,
        parity=None,
    )


def _serialised(graph: onnx.ModelProto) -> bytes:
    return bytes(graph.SerializeToString(deterministic=True))


def _judged_reranker(
    exact: RerankerBundle, variant: RerankerBundle, pairs: list[tuple[str, str]]
) -> RerankerSettings:
    """Compare two variants; the settings with how close they are."""
    one, other = (open_reranker(bundle.path) for bundle in (exact, variant))
    parity, worst_pair = measure_reranker_parity(one, other, pairs)
    check_reranker_parity(parity, worst_pair, variant.settings.precision)
    return replace(variant.settings, parity=parity)
