import json
from pathlib import Path

import numpy as np
import pytest
from support.training.killed_run import run_and_kill
from support.training.tiny_run import tiny_encoder, write_collection, write_pairs

pytest.importorskip("torch", reason="the training loop needs torch")
pytest.importorskip("transformers", reason="training needs transformers")
pytest.importorskip("matplotlib", reason="plots need matplotlib")

from safetensors.numpy import load_file

from quarry.exporters.export import export
from quarry.formats.errors import CorruptFile, InvalidSetting
from quarry.training.loop.history import History
from quarry.training.run import train

pytestmark = pytest.mark.usefixtures("one_torch_thread")

RECIPE = """\
[model]
checkpoint = "checkpoint"
precision = "fp32"
query_tokens = 16
document_tokens = 32
window = 32

[objective]
name = "passages"
tokens_per_piece = [4]
contrastive_weight = 0.5

[alignment]
teachers = ["checkpoint", "teacher"]
dims = [16, 8]

[[data]]
name = "articles"
kind = "beir"
path = "collection"
held_out = 2
group_size = 3

[[data]]
name = "pairs"
kind = "pairs"
path = "pairs.jsonl"
group_size = 2

[training]
steps = 12
batch_size = 8
chunk_size = 4
checkpoint_every = 3

[optimizer]
learning_rate = 3e-3

[validation]
source = "articles"

[output]
name = "aligned"
licence = "mit"
"""


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("aligned")
    tiny_encoder(folder / "checkpoint")
    teacher = tiny_encoder(folder / "teacher")
    settings = {"pooling": "cls", "query_prefix": "abc ", "document_prefix": "def "}
    (teacher / "quarry.json").write_text(json.dumps(settings), "utf-8")
    write_collection(folder / "collection")
    write_pairs(folder / "pairs.jsonl")
    path = folder / "recipe.toml"
    path.write_text(RECIPE, "utf-8")
    return path


@pytest.fixture(scope="module")
def finished(recipe: Path, one_torch_thread: None) -> Path:
    out = recipe.parent / "finished"
    train(recipe, out)
    return out


def terms(out: Path, name: str) -> list[float]:
    return [each["terms"][name] for each in History(out / "history.jsonl").records() if "terms" in each]  # type: ignore[index]


def test_an_aligned_run_approaches_its_teachers_and_keeps_their_vectors(finished: Path, tmp_path: Path) -> None:
    assert set(History(finished / "history.jsonl").records()[-2]["terms"]) == {  # type: ignore[call-overload]
        "contrastive",
        "alignment",
        "distillation",
    }
    distances = terms(finished, "alignment")
    assert np.mean(distances[-4:]) < 0.8 * np.mean(distances[:4])
    head = load_file(finished / "final" / "head.safetensors")
    assert head["projection.weight"].shape == (16, 32)
    kept = np.load(finished / "teachers" / "1" / "articles" / "documents" / "00000.npy")
    assert kept.dtype == np.float16
    shares = json.loads((finished / "teachers" / "shares.json").read_text("utf-8"))
    assert {sum(each["shares"]) for each in shares.values()} == {1.0}
    bundle = export(finished / "final", tmp_path / "bundle", precision="fp32")
    assert bundle.settings.dim == 16


def test_a_killed_run_ends_with_the_same_weights(finished: Path, recipe: Path, tmp_path: Path) -> None:
    out = tmp_path / "killed"
    run_and_kill(recipe, out)
    (out / "teachers" / "0" / "pairs" / "queries" / "00000.npy").unlink()  # as if killed while it was made
    train(recipe, out)
    for name in ("model.safetensors", "head.safetensors"):
        one, other = (load_file(folder / "final" / name) for folder in (finished, out))
        assert all(np.array_equal(values, other[key]) for key, values in one.items())


def test_a_damaged_vector_of_a_teacher_is_named(finished: Path, recipe: Path, tmp_path: Path) -> None:
    path = finished / "teachers" / "1" / "pairs" / "documents" / "00000.npy"
    before = path.read_bytes()
    path.write_bytes(before[:-40])
    try:
        with pytest.raises(CorruptFile, match=r"00000\.npy"):
            train(recipe, finished)
    finally:
        path.write_bytes(before)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("tokens_per_piece = [4]", "tokens_per_piece = [4, 8]", "compares vectors of length 1"),
        ('licence = "mit"', 'licence = "mit"\noriginal_share = 0.5', "puts a layer behind the encoder"),
        ("dims = [16, 8]", "dims = [8, 16]", "dims are out of order"),
        ('teachers = ["checkpoint", "teacher"]', "teachers = []", "there are no teachers"),
        ("dims = [16, 8]", "dims = [80]", "the targets have too many dimensions"),
    ],
)
def test_settings_that_contradict_alignment_are_refused(
    recipe: Path, tmp_path: Path, old: str, new: str, message: str
) -> None:
    changed = recipe.with_name("changed.toml")
    changed.write_text(RECIPE.replace(old, new), "utf-8")
    with pytest.raises(InvalidSetting, match=message):
        train(changed, tmp_path / "run")
