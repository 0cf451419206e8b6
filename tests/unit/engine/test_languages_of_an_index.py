"""An index finds the language of each passage, and analyzes queries by the languages of all."""

from __future__ import annotations

import numpy as np
import pytest
from support.indexes.word_encoder import WordEncoder

from quarry.engine import Engine, InvalidSetting, build
from quarry.formats.container.directory import Directory
from quarry.formats.container.layout import AUTO_LANGUAGE_FEATURE
from quarry.formats.manifest import Manifest, find_latest_generation

TEXTS = {
    "en": "The houses of the old town were built in the last century, and they are still there.",
    "de": "Die Häuser der alten Stadt wurden im letzten Jahrhundert gebaut und stehen noch heute.",
    "fr": "Les maisons de la vieille ville ont été construites au siècle dernier et sont encore là.",
    "ru": "Дома старого города были построены в прошлом веке и стоят там до сих пор.",
    "zh": "旧城区的房子建于上个世纪，现在还在那里。",
}
LANGUAGES = ["english", "french", "german", "none", "russian"]


def documents(texts: dict[str, str] = TEXTS) -> list[dict[str, object]]:
    vectors = np.random.default_rng(0).normal(size=(len(texts), 1, 8)).astype(np.float32)
    return [
        {"id": key, "text": text, "title": f"Title {key}", "vectors": vector, "metadata": {"tag": f"Häuser-{key}"}}
        for (key, text), vector in zip(texts.items(), vectors, strict=True)
    ]


def ids(index, query, **options):
    return [hit.id for hit in index.search(query, 10, mode="lexical", **options)]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("languages") / "index"
    build(documents(), path, dim=8, language="auto")
    return path


@pytest.fixture(scope="module")
def index(path):
    with Engine.open(path) as opened:
        yield opened


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("house", ["en"]),
        ("Haus", ["de"]),
        ("maison", ["fr"]),
        ("дом", ["ru"]),
        ("房子", ["zh"]),
        ("hauser", ["de"]),
        ("hosue", ["en"]),
        ('"old towns"', ["en"]),
        ("hous*", ["en"]),
        ("Häu*", ["de"]),
        ("the of and", []),
        ("die und im", []),
        ("Welche Häuser?", ["de"]),
        ("", []),
    ],
)
def test_words_of_all_languages(index, query, found):
    assert ids(index, query) == found


def test_a_phrase_that_documents_must_have(index):
    assert ids(index, '"die Häuser"', operators=True) == ["de"]
    assert ids(index, '"Häuser Stadt"', operators=True) == []
    assert ids(index, '+"vieille ville"', operators=True) == ["fr"]


def test_words_are_shown(index):
    (hit,) = index.search("Haus gebaut", 1, mode="lexical")
    passage = hit.passages[0]
    assert [passage.text[start:end] for start, end in passage.words] == ["Häuser", "gebaut"]


def test_languages_are_stated(index):
    assert index.stats()["language"] == "auto"
    assert index.stats()["languages"] == LANGUAGES


def test_like(index):
    assert "de" not in [hit.id for hit in index.search(like="de", mode="lexical")]


def test_older_readers_refuse_it(path):
    directory = Directory(path)
    manifest = Manifest.load(directory, find_latest_generation(directory))
    assert manifest.required_features & AUTO_LANGUAGE_FEATURE


@pytest.mark.parametrize("language", ["english", "german"])
def test_rules_of_languages_that_have_not_changed_stay(tmp_path, language):
    build(documents(), tmp_path / "index", dim=8, language=language)
    directory = Directory(tmp_path / "index")
    manifest = Manifest.load(directory, find_latest_generation(directory))
    assert (manifest.settings.analysis_rules, manifest.required_features & AUTO_LANGUAGE_FEATURE) == (2, 0)


def test_an_unknown_language(tmp_path):
    with pytest.raises(InvalidSetting, match="no stemmer"):
        build(documents(), tmp_path / "index", dim=8, language="klingon")
    with pytest.raises(InvalidSetting, match="no stemmer"):
        build(documents(), tmp_path / "index", dim=8, language="auto:german")


@pytest.mark.parametrize("shards", [None, 2])
def test_changes_keep_it(tmp_path, shards):
    """Documents added one after another, changed metadata, deletions, merges: as if built at once."""
    path = tmp_path / "index"
    build([], path, dim=8, language="auto", shards=shards, searchable=["tag"])
    with Engine.open(path, writable=True) as index:
        assert ids(index, "Haus") == []
        for each in documents():
            index.add([each])
            index.commit()
        assert ids(index, "Haus") == ["de"] or set(ids(index, "Haus")) >= {"de"}
        index.update_metadata("fr", {"tag": "Rathaus"})
        index.commit()
        assert "fr" in ids(index, "Rathaus")
        assert ids(index, "maison")[0] == "fr"
        assert index.delete(filter={"title": "Title en"}) == 1
        index.commit()
        assert "en" not in ids(index, "house")
        index.optimize()
        assert ids(index, "дом") == ["ru"]
        index.set_synonyms({"Gebäude": ["Haus"], "old town": ["maison"]})
        assert "de" in ids(index, "Gebäude")
        assert "fr" in ids(index, "old town")
        assert set(index.stats()["languages"]) >= {"german", "french", "russian"}
    with Engine.open(path) as index:
        assert ids(index, "дом") == ["ru"]


def test_workers(tmp_path):
    build(documents(), tmp_path / "index", dim=8, language="auto", workers=2)
    with Engine.open(tmp_path / "index") as index:
        assert index.stats()["languages"] == LANGUAGES
        assert ids(index, "Haus") == ["de"]


class MultilingualEncoder(WordEncoder):
    is_multilingual = True


def test_the_default_follows_the_encoder(tmp_path):
    multilingual_encoder = MultilingualEncoder()
    build([{"id": "a", "text": TEXTS["de"]}], tmp_path / "index", encoder=multilingual_encoder)
    with Engine.open(tmp_path / "index", encoder=multilingual_encoder) as index:
        assert index.stats()["languages"] == ["german"]
        assert ids(index, "Haus") == ["a"]
