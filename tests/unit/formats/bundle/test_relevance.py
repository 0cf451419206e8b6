"""The calibration in a bundle is written, read, refused if damaged, and added to an existing bundle."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from quarry.engine.bundled import BUNDLED, INSTALLABLE, bundled_path, default_bundle_path
from quarry.formats.bundle.encoder import load_bundle
from quarry.formats.bundle.folder import MODEL_NAME, add_bundle_file
from quarry.formats.bundle.relevance import (
    BETWEEN_LANGUAGES,
    RELEVANCE_NAME,
    LogisticModel,
    RelevanceModels,
    read_relevance,
    write_relevance,
)
from quarry.formats.errors import ChecksumMismatch, CorruptFile, FormatTooNew, InvalidSetting

MODELS = RelevanceModels(
    {"hybrid": LogisticModel(-9.5, {"dense": 12.0, "share": 4.0}), "lexical": LogisticModel(-2, {"share": 3.0})},
    ("one", "two"),
)


@pytest.mark.parametrize("typical", [None, 0.0, 0.0625])
def test_what_was_written_is_read(tmp_path, typical):
    path, models = tmp_path / RELEVANCE_NAME, replace(MODELS, typical_spread=typical)
    path.write_bytes(write_relevance(models))
    assert read_relevance(path) == models


def test_a_model_between_languages_has_a_format_of_its_own(tmp_path):
    path, between = tmp_path / RELEVANCE_NAME, LogisticModel(-65.2, {"dense": 81.5})
    models = replace(MODELS, models={**MODELS.models, BETWEEN_LANGUAGES: between})
    path.write_bytes(write_relevance(models))
    assert read_relevance(path) == models
    assert [json.loads(write_relevance(each))["format"] for each in (MODELS, models)] == [1, 2]


@pytest.mark.parametrize("typical", [-0.1, float("nan"), 1e9])
def test_what_could_not_be_read_is_not_written(typical):
    with pytest.raises(InvalidSetting, match="typical_spread is out of range"):
        write_relevance(replace(MODELS, typical_spread=typical))


@pytest.mark.parametrize(
    "change",
    [
        {"models": {"fuzzy": {"intercept": 0, "weights": {}}}},
        {"models": {"dense": {"intercept": "0", "weights": {}}}},
        {"models": {"dense": {"intercept": 0, "weights": {"length": 1}}}},
        {"models": {"dense": {"intercept": 0, "weights": {"dense": 1e9}}}},
        {"models": []},
        {"collections": [1]},
        {"typical_spread": -0.1},
        {"typical_spread": None},
        {"more": 1},
    ],
)
def test_other_contents_are_refused(tmp_path, change):
    path = tmp_path / RELEVANCE_NAME
    path.write_text(json.dumps(json.loads(write_relevance(MODELS)) | change))
    with pytest.raises(CorruptFile):
        read_relevance(path)


def test_a_later_format_is_refused(tmp_path):
    path = tmp_path / RELEVANCE_NAME
    path.write_text(json.dumps({"format": 3}))
    with pytest.raises(FormatTooNew):
        read_relevance(path)


@pytest.fixture
def bundle(tmp_path):
    folder = tmp_path / "bundle"
    folder.mkdir()
    for path in default_bundle_path().iterdir():
        if path.name.startswith("model"):
            (folder / path.name).hardlink_to(path) if _is_same_device(path, folder) else _copy(path, folder)
        else:
            _copy(path, folder)
    return folder


def _is_same_device(path, folder):
    return path.stat().st_dev == folder.stat().st_dev


def _copy(path, folder):
    (folder / path.name).write_bytes(path.read_bytes())


def test_a_calibration_is_added_to_a_bundle_and_replaced(bundle):
    before = load_bundle(bundle)
    for models in (MODELS, RelevanceModels({}, ())):
        add_bundle_file(bundle, RELEVANCE_NAME, write_relevance(models))
        after = load_bundle(bundle)
        assert after.identity == before.identity
        assert after.settings == before.settings
        assert after.verify_files([RELEVANCE_NAME]) > 0
        assert read_relevance(bundle / RELEVANCE_NAME) == models
    assert {path.name for path in bundle.iterdir()} == {*after.files, "bundle.json"}


def test_a_changed_calibration_is_found(bundle):
    add_bundle_file(bundle, RELEVANCE_NAME, write_relevance(MODELS))
    content = (bundle / RELEVANCE_NAME).read_bytes()
    (bundle / RELEVANCE_NAME).write_bytes(content.replace(b"12.0", b"13.0"))
    with pytest.raises(ChecksumMismatch):
        load_bundle(bundle).verify_files([RELEVANCE_NAME])


@pytest.mark.parametrize("name", [MODEL_NAME, "bundle.json", "../outside", "tokenizer.json"])
def test_other_files_are_not_replaced(bundle, name):
    with pytest.raises(InvalidSetting):
        add_bundle_file(bundle, name, b"")


def test_a_folder_without_a_bundle(tmp_path):
    with pytest.raises(InvalidSetting, match="there is no bundle"):
        add_bundle_file(tmp_path, RELEVANCE_NAME, b"")


@pytest.mark.parametrize("name", [*BUNDLED, *INSTALLABLE])
def test_a_bundled_encoder_is_calibrated_for_every_mode(name):
    bundle = load_bundle(bundled_path(name))
    bundle.verify_files([RELEVANCE_NAME])
    models = read_relevance(bundle.path / RELEVANCE_NAME).models
    between = {BETWEEN_LANGUAGES} if load_bundle(bundled_path(name)).settings.multilingual else set()
    assert set(models) == {"hybrid", "dense", "lexical"} | between
    for model in models.values():  # a higher score never lowers the relevance
        assert all(weight > 0 for name, weight in model.weights.items() if name != "spread")
