import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from support.processes import run_python
from support.training.killed_run import run_and_interrupt, run_and_kill
from support.training.tiny_run import RECIPE, write_pairs, write_recipe

pytest.importorskip("torch", reason="the training loop needs torch")
pytest.importorskip("transformers", reason="training needs transformers")
pytest.importorskip("matplotlib", reason="plots need matplotlib")

import torch
from safetensors.numpy import load_file

from quarry import engine
from quarry.engine.cli.commands import main
from quarry.exporters.export import export
from quarry.formats.errors import CorruptFile, InvalidSetting
from quarry.training.loop.history import History
from quarry.training.model.network import load_network
from quarry.training.model.tokens import TextBatcher
from quarry.training.run import train

pytestmark = pytest.mark.usefixtures("one_torch_thread")


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_recipe(tmp_path_factory.mktemp("recipe"))


@pytest.fixture(scope="module")
def finished(recipe: Path, one_torch_thread: None) -> Path:
    """Train without interruption; return the folder of the run."""
    out = recipe.parent / "finished"
    train(recipe, out)
    return out


def same_weights(left: Path, right: Path) -> bool:
    one, other = (load_file(folder / "final" / "model.safetensors") for folder in (left, right))
    return one.keys() == other.keys() and all(np.array_equal(values, other[name]) for name, values in one.items())


def losses(out: Path) -> list[tuple[object, object]]:
    return [
        (each["step"], each.get("terms", each.get("ndcg_10"))) for each in History(out / "history.jsonl").records()
    ]


def test_a_run_leaves_checkpoints_history_curves_and_a_card(finished: Path, recipe: Path) -> None:
    assert sorted(path.name for path in (finished / "checkpoints").iterdir()) == ["step-00000004", "step-00000006"]
    records = History(finished / "history.jsonl").records()
    assert [each["step"] for each in records if "terms" in each] == list(range(6))
    assert [each["step"] for each in records if "ndcg_10" in each] == [0, 2, 5]
    assert {each["source"] for each in records if "terms" in each} == {"articles", "pairs"}
    names = {"contrastive", "distillation from original", "distillation of rows from original"}
    assert all(set(each["terms"]) == names for each in records if "terms" in each)  # type: ignore[call-overload]
    assert (finished / "curves.png").read_bytes()[:4] == b"\x89PNG"
    card = (finished / "final" / "README.md").read_text("utf-8")
    assert card.startswith("---\nlicense: mit\nmodel_name: tiny\n---\n# tiny\n")
    assert "| articles | 32 | 0.667 | 6 | unknown | unknown |" in card
    settings = json.loads((finished / "final" / "quarry.json").read_text("utf-8"))
    assert settings["representation"] == "pieces"
    frozen, before = (
        load_file(folder / "model.safetensors") for folder in (finished / "final", recipe.parent / "checkpoint")
    )
    name = "embeddings.word_embeddings.weight"
    assert np.array_equal(frozen[name], before[name])


def test_final_weights_are_the_trained_ones_mixed_with_the_original_and_rounded(
    finished: Path, recipe: Path
) -> None:
    folders = (finished / "final", finished / "checkpoints" / "step-00000006", recipe.parent / "checkpoint")
    final, trained, before = (load_file(folder / "model.safetensors") for folder in folders)
    changed = 0
    for name, values in final.items():
        mixed = 0.75 * trained[name] + 0.25 * before[name]
        if name.startswith("encoder.layer.") and mixed.ndim == 2:
            np.testing.assert_allclose(values, mixed, atol=np.abs(mixed).max() / 127)
            steps = np.abs(values).max(1, keepdims=True) / 64
            assert np.abs(values / steps - np.rint(values / steps)).max() < 1e-3
        else:
            np.testing.assert_allclose(values, mixed, rtol=1e-5, atol=1e-6)
        changed += not np.array_equal(values, before[name])
    assert changed > 20


def test_mined_negatives_are_not_relevant_and_are_mined_again(finished: Path) -> None:
    rounds = sorted(path.name for path in (finished / "negatives").iterdir())
    assert rounds == ["round-0000", "round-0001"]
    from quarry.training.data.example_store import ExampleStore

    store = ExampleStore(finished / "data" / "articles")
    for each in rounds:
        mined = np.load(finished / "negatives" / each / "articles.npy")
        assert mined.shape == (32, 2)
        assert (mined >= 0).mean() > 0.5
        for example in range(32):
            assert not set(mined[example].tolist()) & set(store.positives(example).tolist())


def test_the_trained_checkpoint_becomes_an_index(finished: Path, tmp_path: Path) -> None:
    bundle = export(finished / "final", tmp_path / "bundle", "fp32", texts=["abc def. ghi", "klm"], n_recorded=1)
    settings = bundle.settings
    assert (settings.name, settings.license, settings.trained_representation) == ("tiny", "mit", "pieces")
    engine.build(["abc def", "ghi jkl"], tmp_path / "index", encoder=bundle.path, progress=False)
    with engine.Engine.open(tmp_path / "index", encoder=bundle.path) as opened:
        assert len(opened.search("abc", 2)) == 2


def test_a_run_that_was_killed_ends_with_the_same_weights(finished: Path, recipe: Path, tmp_path: Path) -> None:
    out = tmp_path / "killed"
    run_and_kill(recipe, out)
    train(recipe, out)
    assert same_weights(out, finished)
    assert losses(out) == losses(finished)


def test_a_finished_run_can_be_requested_again(finished: Path, recipe: Path) -> None:
    before = losses(finished)
    weights = (finished / "final" / "model.safetensors").read_bytes()
    assert train(recipe, finished) == finished / "final"
    assert (finished / "final" / "model.safetensors").read_bytes() == weights
    assert losses(finished)[: len(before)] == before


def test_a_run_starts_from_the_weights_of_a_bundle(finished: Path, tmp_path: Path) -> None:
    export(finished / "final", tmp_path / "bundle", "int8", texts=["abc def. ghi", "klm"], n_recorded=1)
    text = RECIPE.replace('"checkpoint"', f"{str(tmp_path / 'bundle')!r}").replace("steps = 6", "steps = 2")
    recipe = write_recipe(tmp_path / "recipe", text)
    run_and_interrupt(recipe, tmp_path / "interrupted")
    train(recipe, tmp_path / "whole")
    shutil.rmtree(tmp_path / "bundle")  # the run has its weights
    train(recipe, tmp_path / "interrupted")
    assert same_weights(tmp_path / "interrupted", tmp_path / "whole")
    before, final = (load_file(each / "final" / "model.safetensors") for each in (finished, tmp_path / "whole"))
    assert before.keys() == final.keys()
    name = "embeddings.word_embeddings.weight"  # frozen, so what the codes say
    step = np.abs(before[name]).max() / 127
    assert 0 < np.abs(final[name] - before[name]).max() < 2 * step
    card = (tmp_path / "whole" / "final" / "README.md").read_text("utf-8")
    assert "trained from `bundle`" in card
    assert (
        export(
            tmp_path / "whole" / "final", tmp_path / "again", "fp32", texts=["abc"], n_recorded=1
        ).settings.window
        == 32
    )


def test_a_window_is_no_longer_than_the_network_reads(tmp_path: Path) -> None:
    text = RECIPE.replace("window = 32", "window = 256").replace("steps = 6", "steps = 1")
    final = train(write_recipe(tmp_path / "wide", text), tmp_path / "run")
    positions = json.loads((final / "config.json").read_text("utf-8"))["max_position_embeddings"]
    assert json.loads((final / "quarry.json").read_text("utf-8"))["window"] == positions < 256


def test_texts_that_are_longer_than_the_network_reads_are_refused_before_the_first_step(tmp_path: Path) -> None:
    path = write_recipe(tmp_path / "long", RECIPE.replace("document_tokens = 32", "document_tokens = 4096"))
    with pytest.raises(
        InvalidSetting, match=r"longer than the checkpoint reads.*expected .* at most \d+; found 4096"
    ):
        train(path, tmp_path / "run")


def test_a_teacher_that_cuts_texts_into_other_tokens_is_refused_before_the_first_step(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path / "recipe", RECIPE.replace('encoders = ["checkpoint"]', 'encoders = ["other"]'))
    shutil.copytree(recipe.parent / "checkpoint", recipe.parent / "other")
    path = recipe.parent / "other" / "tokenizer.json"
    path.write_text(path.read_text("utf-8").replace('"##p"', '"##pp"'), "utf-8")
    with pytest.raises(InvalidSetting, match=r"other: the teacher cuts document \d+ of 'articles' into other"):
        train(recipe, tmp_path / "run")
    assert not (tmp_path / "run" / "history.jsonl").exists()


def test_a_missing_encoder_of_negatives_is_found_before_data_is_read(tmp_path: Path) -> None:
    path = write_recipe(tmp_path / "missing", RECIPE.replace("\nevery = 4", '\nencoder = "nowhere"'))
    with pytest.raises(InvalidSetting, match=r"nowhere: there is no encoder bundle"):
        train(path, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_recipe_whose_data_is_missing_is_corrected_in_the_same_folder(tmp_path: Path) -> None:
    wrong = write_recipe(tmp_path / "wrong", RECIPE.replace('"collection"', '"collections"'))
    with pytest.raises(InvalidSetting, match=r"collections: the source .articles. is not there"):
        train(wrong, tmp_path / "run")
    right = write_recipe(tmp_path / "right", RECIPE.replace("steps = 6", "steps = 1"))
    assert (train(right, tmp_path / "run") / "model.safetensors").is_file()


def test_a_recipe_from_a_bundle_whose_data_is_missing_is_corrected_in_the_same_folder(tmp_path: Path) -> None:
    text = RECIPE.replace('"checkpoint"', '"bundled:all-MiniLM-L6-v2"').replace('"collection"', '"collections"')
    with pytest.raises(InvalidSetting, match=r"collections: the source .articles. is not there"):
        train(write_recipe(tmp_path / "wrong", text), tmp_path / "run")
    assert [each.name for each in (tmp_path / "run").iterdir()] == ["recipe.toml"]


def test_a_recipe_in_its_own_folder_never_loses_the_data_beside_it(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path / "project", RECIPE.replace("steps = 6", "steps = 1"))
    folder = recipe.parent
    (folder / "data").mkdir()
    (folder / "data" / "mine.txt").write_text("mine", "utf-8")
    (folder / "second.toml").write_text(recipe.read_text("utf-8") + "# second\n", "utf-8")
    with pytest.raises(InvalidSetting, match="the run of another recipe"):
        train(folder / "second.toml", folder)
    recipe.write_bytes(recipe.read_bytes().replace(b"\n", b"\r\n"))
    train(recipe, folder)
    assert (folder / "data" / "mine.txt").read_text("utf-8") == "mine"
    assert (folder / "final" / "model.safetensors").is_file()


def test_a_folder_of_another_recipe_or_of_something_else_is_refused(finished: Path, tmp_path: Path) -> None:
    other = write_recipe(
        tmp_path / "other", RECIPE.replace("seed = 0", "seed = 5").replace("steps = 6", "steps = 7")
    )
    with pytest.raises(InvalidSetting, match="the run of another recipe"):
        train(other, finished)
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "letter.txt").write_text("Dear all", "utf-8")
    with pytest.raises(InvalidSetting, match="holds no run"):
        train(other, tmp_path / "letters")
    assert [path.name for path in (tmp_path / "letters").iterdir()] == ["letter.txt"]


def test_a_damaged_checkpoint_is_named(finished: Path, recipe: Path, tmp_path: Path) -> None:
    import shutil

    out = tmp_path / "damaged"
    shutil.copytree(finished, out)
    state = out / "checkpoints" / "step-00000006" / "state.pt"
    state.write_bytes(state.read_bytes()[:100])
    with pytest.raises(CorruptFile, match=r"step-00000006/state\.pt"):
        train(recipe, out)


def test_a_source_has_batches_of_its_own_size(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path / "recipe", RECIPE.replace("batch_size = 6", "batch_size = 99"))
    with pytest.raises(InvalidSetting, match=r"sizes of the batches of 'articles'.*batch_size 99"):
        train(recipe, tmp_path / "out")


def test_training_that_diverges_is_stopped(tmp_path: Path) -> None:
    text = RECIPE.replace("learning_rate = 1e-3", "learning_rate = 1e30\nmax_norm = 1e30").replace(
        "[negatives]", "[x]"
    )
    text = text[: text.index("[x]")] + text[text.index("[training]") :]
    with pytest.raises(InvalidSetting, match="diverged at step"):
        train(write_recipe(tmp_path / "recipe", text), tmp_path / "out")


def test_the_command_runs_a_recipe(finished: Path, recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", str(recipe), str(finished)]) == 0
    assert f"{finished / 'final'}: trained" in capsys.readouterr().out
    assert main(["train", "nowhere.toml", str(finished)]) == 1
    assert "the recipe cannot be read" in capsys.readouterr().err


def test_the_command_says_what_to_install(recipe: Path) -> None:
    program = "import sys\nsys.modules['torch'] = None\nfrom quarry.engine.cli.commands import main\n"
    program += f"sys.exit(main(['train', {str(recipe)!r}, 'out']))"
    done = run_python("-c", program)
    assert done.returncode == 1
    assert "pip install 'quarry-search[train]'" in done.stderr


def test_history_drops_what_is_done_again_and_a_line_that_was_cut_off(tmp_path: Path) -> None:
    history = History(tmp_path / "history.jsonl")
    assert history.records() == []
    for step in range(4):
        history.append({"step": step})
    with (tmp_path / "history.jsonl").open("a") as file:
        file.write('{"st')
    assert len(history.records()) == 4
    history.rewind(2)
    assert history.records() == [{"step": 0}, {"step": 1}]


def test_changed_data_stops_a_run_from_resuming(tmp_path: Path) -> None:
    text = RECIPE[: RECIPE.index("[negatives]")] + RECIPE[RECIPE.index("[training]") :].replace(
        "steps = 6", "steps = 1"
    )
    recipe = write_recipe(tmp_path / "recipe", text)
    train(recipe, tmp_path / "out")
    write_pairs(recipe.parent / "pairs.jsonl", seed=8)
    with pytest.raises(InvalidSetting, match="the files of the source 'pairs' changed"):
        train(recipe, tmp_path / "out")


WHITENED = RECIPE.replace("original_share = 0.25", "whitening = 2.0")


def test_whitening_puts_a_layer_behind_the_trained_network(recipe: Path, finished: Path, tmp_path: Path) -> None:
    """The layer whitens means of documents; the bundle's vectors are the network's, and are trained on again."""
    path = write_recipe(tmp_path / "whitened", WHITENED)
    final = train(path, tmp_path / "run")
    last = tmp_path / "run" / "checkpoints" / "step-00000006"
    assert not (last / "head.safetensors").exists()
    layer = load_file(final / "head.safetensors")["projection.weight"]
    np.testing.assert_allclose(layer, layer.T, atol=1e-6)
    assert np.abs(layer - np.eye(len(layer))).max() > 0.01
    bundle = export(final, tmp_path / "bundle", "fp32")
    plain = tmp_path / "plain"
    shutil.copytree(final, plain)
    (plain / "head.safetensors").unlink()
    text = "abc def gh"
    found, before = (
        engine.open_encoder(each.path).encode_query(text)
        for each in (bundle, export(plain, tmp_path / "b", "fp32"))
    )
    expected = layer @ before
    np.testing.assert_allclose(found, expected / np.linalg.norm(expected), atol=1e-5)

    again = WHITENED.replace('checkpoint = "checkpoint"', f'checkpoint = "{bundle.path}"').replace(
        "steps = 6", "steps = 0"
    )
    twice = train(write_recipe(tmp_path / "again", again), tmp_path / "again" / "run")
    second = load_file(twice / "head.safetensors")["projection.weight"]
    ratios = np.linalg.solve(
        layer.T.astype(np.float64), second.T.astype(np.float64)
    ).T  # what follows the first layer
    np.testing.assert_allclose(ratios, ratios.T, atol=1e-3)
    assert np.abs(ratios - np.eye(len(layer))).max() > 1e-3
    assert not list((tmp_path / "again" / "run" / "checkpoints").glob("*"))
    assert (tmp_path / "again" / "run" / "curves.png").is_file()


def test_a_source_that_cannot_be_whitened_is_refused_before_the_first_step(tmp_path: Path) -> None:
    path = write_recipe(tmp_path / "alike", WHITENED)
    lines = "".join(json.dumps({"q": f"question {letter}", "d": "abc def"}) + "\n" for letter in "abcdefgh")
    (path.parent / "pairs.jsonl").write_text(lines, "utf-8")
    with pytest.raises(InvalidSetting, match="the source 'pairs' cannot be whitened"):
        train(path, tmp_path / "run")
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_the_vectors_that_are_compared_are_whitened(tmp_path: Path) -> None:
    """Of single vectors with pooling cls these are the vectors of [CLS], not means."""
    single = WHITENED.replace(
        'name = "passages"\ntokens_per_piece = [4, 8]', 'name = "single_vector"\npooling = "cls"'
    )
    text = single.replace("passage_weight = 0.25\n", "").replace("steps = 6", "steps = 0")
    text = text.replace("whitening = 2.0", "whitening = 1e-4").replace(
        '[[data]]\nname = "pairs"', '[[data]]\nname = "more"'
    )
    path = write_recipe(tmp_path / "cls", text)
    final = train(path, tmp_path / "run")
    network = load_network(final)
    batcher = TextBatcher(network.tokenizer_path, "", 32)
    entries = (json.loads(line) for line in (path.parent / "pairs.jsonl").read_text("utf-8").splitlines())
    with torch.no_grad():
        vectors = [network.hidden(batcher.batch([entry["d"]]))[0, 0].numpy() for entry in entries]
        layer = network.projection.weight.numpy()
    before = np.array(vectors) @ np.linalg.inv(layer.T)
    largest = [
        np.linalg.svd(each - each.mean(0), compute_uv=False)[0] / np.linalg.norm(each - each.mean(0))
        for each in (before, np.array(vectors))
    ]
    assert largest[1] < 0.8 * largest[0]
