"""Runs that train a reranker: from a recipe to a bundle that reorders hits."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from support.models.tiny_checkpoint import edit_json
from support.training.killed_run import run_and_interrupt
from support.training.tiny_run import write_recipe

pytest.importorskip("torch", reason="the training loop needs torch")
pytest.importorskip("transformers", reason="training needs transformers")
pytest.importorskip("matplotlib", reason="plots need matplotlib")

from safetensors.numpy import load_file

from quarry import engine
from quarry.engine.search.reranker import open_reranker
from quarry.exporters.export import export_reranker
from quarry.formats.errors import CorruptFile, InvalidSetting
from quarry.training.data.example_store import ExampleStore
from quarry.training.loop.history import History
from quarry.training.recipe import read_recipe
from quarry.training.run import train

pytestmark = pytest.mark.usefixtures("one_torch_thread")

RECIPE = """\
[model]
checkpoint = "checkpoint"
frozen = ["embeddings.word_embeddings."]
precision = "fp32"
dropout = 0.1
query_tokens = 16
document_tokens = 20
window = 48

[objective]
name = "cross_encoder"

[negatives]
mode = "lexical"
depth = 6
count = 4
margin = 10.0

[[data]]
name = "articles"
kind = "beir"
path = "collection"
held_out = 2

[training]
steps = 6
batch_size = 8
chunk_size = 6
n_negatives = 2
seed = 3
checkpoint_every = 2
validate_every = 3

[optimizer]
learning_rate = 1e-3

[validation]
source = "articles"

[output]
name = "tiny-reranker"
licence = "mit"
"""


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_recipe(tmp_path_factory.mktemp("recipe"), RECIPE)


@pytest.fixture(scope="module")
def finished(recipe: Path, one_torch_thread: None) -> Path:
    return train(recipe, recipe.parent / "finished")


def test_a_run_leaves_a_sequence_classifier(finished: Path, recipe: Path) -> None:
    config = json.loads((finished / "config.json").read_text("utf-8"))
    assert config["architectures"] == ["BertForSequenceClassification"]
    assert len(config["id2label"]) == 1
    assert json.loads((finished / "tokenizer_config.json").read_text("utf-8"))["model_max_length"] == 48
    weights, before = (
        load_file(folder / "model.safetensors") for folder in (finished, recipe.parent / "checkpoint")
    )
    assert weights["classifier.weight"].shape[0] == 1
    name = "embeddings.word_embeddings.weight"
    assert np.array_equal(weights[f"bert.{name}"], before[name])
    assert not np.array_equal(
        weights["bert.embeddings.token_type_embeddings.weight"], before["embeddings.token_type_embeddings.weight"]
    )
    assert "A reranker for Quarry" in (finished / "README.md").read_text("utf-8")
    records = History(finished.parent / "history.jsonl").records()
    assert [each["step"] for each in records if "ndcg_10" in each] == [0, 2, 5]
    assert all(np.isfinite(each["terms"]["contrastive"]) for each in records if "terms" in each)


def test_negatives_that_rank_before_the_relevant_document_are_kept(finished: Path) -> None:
    store = ExampleStore(finished.parent / "data" / "articles")
    mined = np.load(finished.parent / "negatives" / "round-0000" / "articles.npy")
    assert mined.shape == (store.n_examples, 4)
    for example in range(store.n_examples):
        assert not set(mined[example].tolist()) & set(store.positives(example).tolist())


def test_an_interrupted_run_ends_with_the_same_weights(finished: Path, recipe: Path, tmp_path: Path) -> None:
    run_and_interrupt(recipe, tmp_path / "run")
    again = load_file(train(recipe, tmp_path / "run") / "model.safetensors")
    weights = load_file(finished / "model.safetensors")
    assert again.keys() == weights.keys()
    assert all(np.array_equal(values, again[name]) for name, values in weights.items())


def test_a_run_that_is_killed_in_a_validation_does_it_again(
    finished: Path, recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    no_grad, history = torch.no_grad, History(tmp_path / "run" / "history.jsonl")

    def stop() -> object:
        if 5 in [each["step"] for each in history.records()]:  # the last one
            raise KeyboardInterrupt
        return no_grad()

    with monkeypatch.context() as patch:
        patch.setattr(torch, "no_grad", stop)
        with pytest.raises(KeyboardInterrupt) as caught:
            train(recipe, tmp_path / "run")
    assert "validate" in [entry.name for entry in caught.traceback]
    assert [each["step"] for each in history.records() if "ndcg_10" in each] == [0, 2]
    train(recipe, tmp_path / "run")
    whole, resumed = (
        [{name: value for name, value in each.items() if name != "seconds"} for each in History(path).records()]
        for path in (finished.parent / "history.jsonl", tmp_path / "run" / "history.jsonl")
    )
    assert resumed == whole


def test_the_checkpoint_becomes_a_reranker_of_an_engine(finished: Path, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from quarry.training.model.cross_encoder import load_cross_encoder
    from quarry.training.model.tokens import PairBatcher

    bundle = export_reranker(finished, tmp_path / "bundle", "fp32")
    texts = ["abc def ghi", "ghi jkl abc", "mno pab cde"]
    network = load_cross_encoder(finished)
    network.model.eval()
    pairs = PairBatcher(network.tokenizer_path, 16, 24).batch([("abc ghi", text) for text in texts])
    with torch.no_grad():
        trained = network.scores(pairs).numpy()
    np.testing.assert_allclose(open_reranker(bundle.path).scores("abc ghi", texts), trained, atol=1e-4)
    engine.build(texts, tmp_path / "index", progress=False)
    with engine.Engine.open(tmp_path / "index", reranker=bundle.path) as opened:
        hits = opened.search("abc ghi", 3, rerank=3)
    assert [texts.index(hit.text) for hit in hits] == np.argsort(-trained, kind="stable").tolist()


def test_a_cross_encoder_continues_from_its_own_checkpoint(finished: Path, tmp_path: Path) -> None:
    folder = tmp_path / "more"
    recipe = write_recipe(folder, RECIPE.replace('"checkpoint"', f'"{finished.as_posix()}"', 1))
    weights = load_file(train(recipe, folder / "run") / "model.safetensors")
    before = load_file(finished / "model.safetensors")
    assert weights.keys() == before.keys()
    assert np.abs(weights["classifier.weight"] - before["classifier.weight"]).max() < 0.1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('name = "cross_encoder"', 'name = "cross_encoder"\nscale = 2.0'), "has no settings"),
        (('mode = "lexical"', 'mode = "lexical"\nevery = 4'), "found once"),
        (("n_negatives = 2", "n_negatives = 0"), "found once"),
        (('licence = "mit"', 'licence = "mit"\noriginal_share = 0.5'), "without it; found output.original_share"),
        (("held_out = 2", "held_out = 2\ncluster_size = 4"), "without it; found cluster_size"),
        (("window = 48", 'window = 48\nquery_prefix = "q: "'), "without it; found model.query_prefix"),
        (("window = 48", "window = 48\nrounds_weights = true"), "without it; found model.rounds_weights"),
    ],
)
def test_what_belongs_to_encoders_is_refused(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    assert change[0] in RECIPE
    path = tmp_path / "recipe.toml"
    path.write_text(RECIPE.replace(*change, 1), "utf-8")
    with pytest.raises(InvalidSetting, match=message):
        read_recipe(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("document_tokens = 20", "document_tokens = 24"), "special tokens of at most 40 in all; found 43"),
        (("window = 48", "window = 6"), "no room for text beside query and special tokens; expected 7"),
        (("window = 48", "window = 2"), "window is out of range"),
        (("dropout = 0.1", "dropout = 1.5"), "dropout is out of range"),
        (("dropout = 0.1", 'device = "abacus"'), "device cannot be used"),
        (('source = "articles"', 'source = "articles"\nn_queries = 0'), "n_queries is out of range"),
    ],
)
def test_settings_that_would_fail_later_are_refused_before_the_first_step(
    recipe: Path, tmp_path: Path, change: tuple[str, str], message: str
) -> None:
    path = write_recipe(tmp_path / "recipe", RECIPE.replace(*change, 1))
    with pytest.raises(InvalidSetting, match=message):
        train(path, tmp_path / "run")
    assert not (tmp_path / "run" / "checkpoints").exists()


@pytest.mark.parametrize("name", ["model.safetensors", "negatives"])
def test_damaged_files_of_a_run_are_reported_when_it_resumes(
    finished: Path, recipe: Path, tmp_path: Path, name: str
) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished.parent, run)
    if name == "negatives":
        shutil.rmtree(run / "checkpoints")
        path = run / "negatives" / "round-0000" / "articles.npy"
    else:
        path = run / "checkpoints" / "step-00000006" / name
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(CorruptFile, match=path.parent.name):
        train(recipe, run)
    if name == "negatives":
        np.save(path, np.zeros((3, 4), np.int64))
        with pytest.raises(CorruptFile, match="not those of the source"):
            train(recipe, run)


def test_a_checkpoint_that_counts_its_labels_can_be_exported(recipe: Path, tmp_path: Path) -> None:
    path = write_recipe(tmp_path / "recipe", RECIPE.replace("steps = 6", "steps = 1"))
    edit_json(path.parent / "checkpoint" / "config.json", num_labels=2)
    assert export_reranker(train(path, tmp_path / "run"), tmp_path / "bundle", "fp32").settings.window == 40
