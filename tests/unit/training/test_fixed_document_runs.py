import shutil
from pathlib import Path

import numpy as np
import pytest
from support.models.tiny_checkpoint import random_weights, write_checkpoint
from support.training.killed_run import run_and_interrupt
from support.training.tiny_run import short_recipe, write_recipe

torch = pytest.importorskip("torch", reason="the training loop needs torch")
pytest.importorskip("transformers", reason="training needs transformers")
pytest.importorskip("matplotlib", reason="plots need matplotlib")

from safetensors.numpy import load_file  # noqa: E402

from quarry import engine  # noqa: E402
from quarry.exporters.export import export  # noqa: E402
from quarry.formats.errors import CorruptFile, InvalidSetting  # noqa: E402
from quarry.training.data.example_store import ExampleStore  # noqa: E402
from quarry.training.loop.history import History  # noqa: E402
from quarry.training.run import train  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_torch_thread")

RECIPE = short_recipe(
    """\
[fixed_documents]
n_negatives = 5
hybrid_weight = 0.5
mean_weight = 0.3
code_weight = 0.3
code_bytes = 2
code_dim = 24
original_weight = 0.5
"""
)
TERMS = {"contrastive", "hybrid", "mean", "codes", "distillation from before"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recipes")
    write_recipe(folder)
    (folder / "fixed.toml").write_text(RECIPE, "utf-8")
    return folder


@pytest.fixture(scope="module")
def finished(folder: Path, one_torch_thread: None) -> Path:
    """Train without interruption; return the folder of the run."""
    train(folder / "fixed.toml", folder / "run")
    return folder / "run"


def test_queries_alone_are_trained(finished: Path, folder: Path) -> None:
    records = History(finished / "history.jsonl").records()
    assert all(set(each["terms"]) == TERMS for each in records if "terms" in each)  # type: ignore[call-overload]
    before = load_file(folder / "checkpoint/model.safetensors")
    documents = load_file(finished / "final/model.safetensors")
    queries = load_file(finished / "final/query/model.safetensors")
    assert all(np.array_equal(values, before[name]) for name, values in documents.items())
    changed = {name for name, values in queries.items() if not np.array_equal(values, before[name])}
    assert changed
    assert not any(name.startswith("embeddings.") for name in changed)


def test_a_run_that_was_interrupted_ends_with_the_same_weights(
    finished: Path, folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "interrupted"
    run_and_interrupt(folder / "fixed.toml", out)
    train(folder / "fixed.toml", out)
    found, expected = (load_file(each / "final/query/model.safetensors") for each in (out, finished))
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values)


def test_vectors_that_were_trained_with_are_those_of_an_index(finished: Path, tmp_path: Path) -> None:
    bundle = export(finished / "final", tmp_path / "bundle", "fp32", texts=["abc def. ghi", "klm"], n_recorded=1)
    store = ExampleStore(finished / "data" / "articles")
    with np.load(finished / "rows" / "articles.npz") as arrays:
        rows, offsets = arrays["rows"], arrays["offsets"]
    documents = [{"id": str(number), "text": store.document(number)} for number in range(store.n_documents)]
    engine.build(documents, tmp_path / "index", encoder=bundle.path, centroids="float16", progress=False)
    with engine.Engine.open(tmp_path / "index", encoder=bundle.path) as opened:
        for document in opened.get([str(number) for number in range(store.n_documents)], vectors=True):
            assert document is not None
            low, high = offsets[int(document.id) : int(document.id) + 2]
            np.testing.assert_allclose(document.vectors, rows[low:high].astype(np.float32), atol=2e-3)


def test_documents_may_be_encoded_by_a_bundle(finished: Path, folder: Path, tmp_path: Path) -> None:
    export(finished / "final", folder / "bundle", "fp32", texts=["abc def. ghi", "klm"], n_recorded=1)
    recipe = folder / "by_bundle.toml"
    recipe.write_text(RECIPE.replace("n_negatives", 'encoder = "bundle"\nn_negatives'), "utf-8")
    train(recipe, tmp_path / "run")
    with np.load(tmp_path / "run/rows/pairs.npz") as found, np.load(finished / "rows/pairs.npz") as expected:
        np.testing.assert_array_equal(found["offsets"], expected["offsets"])
        np.testing.assert_allclose(found["rows"], expected["rows"], atol=2e-3)


def test_an_encoder_of_other_weights_is_refused(folder: Path, tmp_path: Path) -> None:
    other = write_checkpoint(tmp_path / "other", weights=random_weights(seed=5))
    export(other, folder / "other", "fp32", texts=["abc def. ghi", "klm"], n_recorded=1)
    recipe = folder / "by_other.toml"
    recipe.write_text(RECIPE.replace("n_negatives", 'encoder = "other"\nn_negatives'), "utf-8")
    with pytest.raises(InvalidSetting, match=r"documents (has other weights|reads texts otherwise)"):
        train(recipe, tmp_path / "run")


def test_damaged_vectors_are_refused_when_a_run_is_resumed(finished: Path, folder: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "run")
    path = tmp_path / "run/rows/articles.npz"
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(CorruptFile, match=r"articles\.npz"):
        train(folder / "fixed.toml", tmp_path / "run")


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("[8]", "[8, 16]", "one length"),
        ("[training]", "[compression]\nmethod = 'jpq'\ncode_bytes = 4\n\n[training]", "fixed vectors or codes"),
        ("[training]", "[negatives]\n\n[training]", "finds its own negatives"),
        ('name = "passages"', 'name = "passages"\ncontrastive_weight = 0.0', "its own candidates"),
        (
            "[training]",
            "[[teachers]]\nname = 't'\nweight = 1.0\nencoders = ['checkpoint']\n\n[training]",
            "teachers",
        ),
        ("code_dim = 24", "code_dim = 4000", "codes does not fit"),
        ("hybrid_weight = 0.5", "hybrid = 0.5", "unknown member"),
    ],
)
def test_what_has_no_part_is_refused(folder: Path, tmp_path: Path, before: str, after: str, message: str) -> None:
    recipe = folder / "refused.toml"
    recipe.write_text(RECIPE.replace(before, after), "utf-8")
    with pytest.raises(InvalidSetting, match=message):
        train(recipe, tmp_path / "run")
