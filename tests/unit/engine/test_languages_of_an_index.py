"""An index finds the language of each passage, and analyzes queries by the languages of all."""

from __future__ import annotations

import shutil
from itertools import product

import numpy as np
import pytest
from support.indexes.inside import view_of
from support.indexes.word_encoder import WordEncoder

from quarry.engine import Engine, InvalidSetting, build
from quarry.formats.container.directory import Directory
from quarry.formats.manifest import Manifest, find_latest_generation

TEXTS = {
    "en": "The houses of the old town were built in the last century, and they are still there.",
    "de": "Die Häuser der alten Stadt wurden im letzten Jahrhundert gebaut und stehen noch heute.",
    "fr": "Les maisons de la vieille ville ont été construites au siècle dernier et sont encore là.",
    "ru": "Дома старого города были построены в прошлом веке и стоят там до сих пор.",
    "zh": "旧城区的房子建于上个世纪，现在还在那里。",
}
AUTO_LANGUAGE = 1 << 3  # of the features that a reader must support (formats/SPEC.md, 3)
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
    assert manifest.required_features & AUTO_LANGUAGE


@pytest.mark.parametrize("language", ["english", "german"])
def test_rules_of_languages_that_have_not_changed_stay(tmp_path, language):
    build(documents(), tmp_path / "index", dim=8, language=language)
    directory = Directory(tmp_path / "index")
    manifest = Manifest.load(directory, find_latest_generation(directory))
    assert (manifest.settings.analysis_rules, manifest.required_features & AUTO_LANGUAGE) == (2, 0)


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


SHORT = {
    "english": [
        "A river runs through the valleys, where farmers have been growing apples for many years.",
        "She studies the histories of libraries and has written several articles about reading.",
    ],
    "german": [
        "Ein Fluss fließt durch die Täler, in denen Bauern seit vielen Jahren Äpfel anbauen.",
        "Sie studiert die Geschichte der Bibliotheken und hat mehrere Aufsätze über das Lesen geschrieben.",
    ],
    "none": [
        "一条河流穿过山谷，农民在那里种植苹果已有多年。",
        "แม่น้ำไหลผ่านหุบเขาที่ชาวนาปลูกแอปเปิลมาหลายปี",
    ],
    "arabic": [
        "يجري نهر عبر الوديان حيث يزرع المزارعون التفاح منذ سنوات عديدة.",
        "تدرس تاريخ المكتبات وقد كتبت عدة مقالات عن القراءة.",
    ],
    "greek": [
        "Ένα ποτάμι διασχίζει τις κοιλάδες, όπου οι αγρότες καλλιεργούν μήλα εδώ και πολλά χρόνια.",
        "Μελετά την ιστορία των βιβλιοθηκών και έχει γράψει αρκετά άρθρα για την ανάγνωση.",
    ],
    "turkish": [
        "Çiftçilerin uzun yıllardır elma yetiştirdiği vadilerden bir nehir geçiyor.",
        "Tarihçiler üzerine birkaç makale yazdı ve eski şehirleri inceliyor.",
    ],
}
QUESTIONS = {
    "english": ["valley", "the apples of farmers", "article*", "libary", '"the histories"', "-farmers river"],
    "german": ["Tal", "die Äpfel der Bauern", "Bauer*", "bibliotek", '"die Geschichte"', "aufsatze"],
    "none": ["河流", "苹果", '"穿过山谷"', "แม่น้ำ", "果"],
    "arabic": ["النهر", "مقالات", "المكتبة", '"تاريخ المكتبات"'],
    "greek": ["ποταμι", "τα μήλα", "αγροτ*", "βιβλιοθήκη"],
    "turkish": ["nehir", "elmalar", "makaleler", "eski şehir ve nehir"],
}
SETTINGS = {
    "searchable": ["tag"],
    "field_weights": {"title": 2},
    "synonyms": {"valley": ["farmers"], "Tal": ["Bauern"]},
}
OPTIONS = [{}, {"operators": True}, {"prefix": True}, {"unit": "passage"}, {"filter": {"tag": {"$exists": True}}}]


def short_documents(language: str) -> list[dict[str, object]]:
    texts = {f"{language}{number}": text for number, text in enumerate(SHORT[language])}
    return [{**each, "metadata": {"tag": str(each["text"])[-20:]}} for each in documents(texts)]


def every_document() -> list[dict[str, object]]:
    return [each for language in SHORT for each in short_documents(language)]


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    path = tmp_path_factory.mktemp("mixed") / "index"
    build(every_document(), path, dim=8, language="auto", **SETTINGS)
    with Engine.open(path) as opened:
        yield opened


@pytest.mark.parametrize("language", SHORT)
def test_each_language_is_found_as_in_an_index_of_its_own(tmp_path, mixed, language):
    build(short_documents(language), tmp_path / "own", dim=8, language=language, **SETTINGS)
    with Engine.open(tmp_path / "own") as own:
        for query, options in product(QUESTIONS[language], OPTIONS):
            assert set(ids(mixed, query, **options)) == set(ids(own, query, **options)), (query, options)


def answers(index: Engine) -> list[list[tuple[str, float]]]:
    questions = [query for several in QUESTIONS.values() for query in several]
    return [
        [(hit.id, pytest.approx(hit.score)) for hit in index.search(query, 20, mode="lexical", **options)]
        for query, options in product(questions, OPTIONS)
    ]


def built_in_parts(path):
    """Write each document by itself, its metadata later, and half of the documents in another index."""
    for folder in ("index", "other"):
        build([], path / folder, dim=8, language="auto", **SETTINGS)
    for number, each in enumerate(every_document()):
        with Engine.open(path / ("other" if number % 2 else "index"), writable=True) as index:
            index.add([{**each, "metadata": {"tag": "The title is not yet known"}}])
            index.commit()
            index.update_metadata(each["id"], each["metadata"])
            index.commit()
    with Engine.open(path / "index", writable=True) as index:
        index.add_indexes(path / "other")


@pytest.mark.parametrize(
    "write",
    [
        built_in_parts,
        lambda path: build(every_document(), path / "index", dim=8, language="auto", shards=3, **SETTINGS),
    ],
    ids=["parts", "shards"],
)
def test_the_way_of_writing_changes_no_score(tmp_path, mixed, write):
    write(tmp_path)
    with Engine.open(tmp_path / "index", writable=True) as index:
        assert answers(index) == answers(mixed)
        assert index.stats()["languages"] == mixed.stats()["languages"]
        index.optimize()
        assert answers(index) == answers(mixed)


def test_indexes_of_other_languages_are_not_added(tmp_path):
    for language in ("auto", "english"):
        build(documents(), tmp_path / language, dim=8, language=language)
    for one, other in (("auto", "english"), ("english", "auto")):
        with (
            Engine.open(tmp_path / one, writable=True) as index,
            pytest.raises(InvalidSetting, match="of language"),
        ):
            index.add_indexes(tmp_path / other)


def test_a_language_goes_with_its_last_document(tmp_path, path):
    shutil.copytree(path, tmp_path / "index")
    with Engine.open(tmp_path / "index", writable=True) as index:
        index.delete("fr")
        index.commit()
        assert index.stats()["languages"] == [each for each in LANGUAGES if each != "french"]
        for each in TEXTS:
            index.delete(each)
        index.commit()
        index.optimize()
        assert "languages" not in index.stats()
        assert ids(index, "house") == []


def test_documents_are_deleted_by_their_titles(tmp_path):
    """Titles are looked up by their terms in a segment of many documents."""
    many = {f"{number} houses": "The houses of the old town" for number in range(100)}
    many |= {f"Houses in war {number}": TEXTS["de"] for number in range(100)}
    named = [{**each, "title": each["id"]} for each in documents(many)]
    build(named, tmp_path / "index", dim=8, language="auto")
    for title in ("7 houses", "Houses in war 8"):
        with Engine.open(tmp_path / "index", writable=True) as index:
            assert ids(index, "", filter={"title": title}) == [title]
            assert index.delete(filter={"title": title}) == 1
            index.commit()


def test_a_word_that_is_a_stop_word_elsewhere(tmp_path):
    texts = {"en": "The houses of the town were burned in the war.", "de": "Es war ein altes Haus in der Stadt."}
    build(documents(texts), tmp_path / "few", dim=8, language="auto")
    english = {f"e{number}": f"Of the house number {number} they say that it was old" for number in range(100)}
    build(documents(texts | english), tmp_path / "many", dim=8, language="auto")
    for name in ("few", "many"):
        with Engine.open(tmp_path / name) as index:
            assert ids(index, "war") == ["en"]
    with Engine.open(tmp_path / "many") as index:
        assert ids(index, "war in Vietnam") == ["en"]  # one German document is little evidence


@pytest.mark.parametrize("word", ["over", "the", "war"])
def test_synonyms_of_stop_words(tmp_path, word):
    """Whether a word is one depends on the languages of the documents, which change."""
    texts = {"nl": "Het huis van de oude stad is in de vorige eeuw gebouwd, boven de rivier."}
    build([], tmp_path / "index", dim=8, language="auto", synonyms={word: ["boven"], "huis": ["bouwwerk"]})
    with Engine.open(tmp_path / "index", writable=True) as index:
        index.add(documents(texts))
        index.commit()
        assert index.stats()["languages"] == ["dutch"]
        assert ids(index, "huizen") == ["nl"]
        index.add(documents(TEXTS))
        index.commit()
        assert ids(index, f"{word} huis")[0] == "nl"


def test_a_mistyped_word_has_its_synonyms(tmp_path):
    build(documents(), tmp_path / "index", dim=8, language="auto", synonyms={"dwelling": ["houses"]})
    with Engine.open(tmp_path / "index") as index:
        assert ids(index, "dwelling") == ids(index, "dweling") == ["en"]


def test_a_stop_word_of_a_language_is_not_mistyped(tmp_path):
    """French documents have no term for "pour", and no document has another: "four" is another word."""
    texts = {
        "en": "There are four cats in the garden, and they sleep there all day long.",
        "fr": "La cour du palais est grande, et les enfants jouent pour le plaisir de tous.",
    }
    build(documents(texts), tmp_path / "index", dim=8, language="auto")
    with Engine.open(tmp_path / "index") as index:
        assert ids(index, "fuor") == ["en"]
        assert ids(index, "pour") == []
        assert ids(index, "pour cats") == ["en"]


def test_odd_texts(tmp_path):
    texts = {
        "numbers": "12345 678",
        "signs": "!!! --- ***",
        "empty": "",
        "word": "Haus",
        "mark": "\x01german | a=b",
        "both": "The houses of the town. Die Häuser.",
        "long": "The houses of the town were old and they are still there. " * 1800,
        "longest": "a" * 100_000,
        "thai": "บ้าน" * 25_000,
    }
    build(documents(texts), tmp_path / "index", dim=8, language="auto")
    with Engine.open(tmp_path / "index") as index:
        assert ids(index, "12345") == ["numbers"]
        assert ids(index, "Häuser") == ["both"]
        assert ids(index, "haus") == ["word"]
        assert set(ids(index, "house")) == {"both", "long"}
        assert ids(index, "\x01german") == ["mark"]
        assert ids(index, "บ้าน") == ["thai"]
        assert ids(index, "--- !!!") == ids(index, "") == []


class MultilingualEncoder(WordEncoder):
    is_multilingual = True


def test_the_default_follows_the_encoder(tmp_path):
    multilingual_encoder = MultilingualEncoder()
    build([{"id": "a", "text": TEXTS["de"]}], tmp_path / "index", encoder=multilingual_encoder)
    with Engine.open(tmp_path / "index", encoder=multilingual_encoder) as index:
        assert index.stats()["languages"] == ["german"]
        assert ids(index, "Haus") == ["a"]


@pytest.mark.parametrize("unit", ["document", "passage"])
@pytest.mark.parametrize("mode", ["lexical", "hybrid"])
def test_shards_analyze_queries_by_the_languages_of_all(tmp_path, mode, unit):
    """A shard without texts of a language answers as one index does, to phrases, prefixes, errors and synonyms."""
    texts = {
        "hi-1": "चाँद पर क्या है और यह क्या है",
        "hi-2": "यह आटा है और यह रोटी है",
        "th-1": "ดวงจันทร์ आटा है है",
        "de-1": "Das Brot ist gut, und das Brot ist warm.",
        **{f"en-{n}": f"Bread number {n} is of the old bakery, and it is good." for n in range(6)},
    }
    settings = {"dim": 8, "language": "auto", "synonyms": {"bread": ["Brot", "old bakery"]}}
    build(documents(texts), tmp_path / "one", **settings)
    build(documents(texts), tmp_path / "shards", shards=3, **settings)
    vector = np.ones(8)
    queries = ['आटा "है है"', 'आटा +"है है"', "brzad", "baker* gut", "the old bak", "Brto bread", "है"]
    with Engine.open(tmp_path / "one") as one, Engine.open(tmp_path / "shards") as shards:
        for query, operators, prefix in product(queries, (None, True), (False, True)):
            options = {"mode": mode, "unit": unit, "operators": operators, "prefix": prefix, "explain": True}
            options |= {"vector": vector} if mode == "hybrid" else {}
            expected, found = (
                [
                    (hit.id, hit.score, dict(hit.terms), dict(hit.mistyped))
                    for hit in index.search(query, **options)
                ]
                for index in (one, shards)
            )
            assert found == expected, (query, options)


def test_languages_are_expected_alike_after_deletions_and_in_shards(tmp_path):
    texts = {f"en-{n}": TEXTS["en"] for n in range(7)} | {f"de-{n}": TEXTS["de"] for n in range(3)}
    build(documents(texts), tmp_path / "one", dim=8, language="auto")
    build(
        documents(texts | {f"en-{n}": TEXTS["en"] for n in range(7, 20)}),
        tmp_path / "more",
        dim=8,
        language="auto",
    )
    build(documents(texts), tmp_path / "shards", dim=8, language="auto", shards=3)
    with Engine.open(tmp_path / "more", writable=True) as index:
        index.delete([f"en-{n}" for n in range(7, 20)])
        index.commit()
    for name in ("one", "more", "shards"):
        with Engine.open(tmp_path / name) as index:
            assert view_of(index).settings.analysis == "auto:english=3,german=2", name
