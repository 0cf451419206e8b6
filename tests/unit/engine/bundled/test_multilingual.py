"""The distribution quarry-multilingual: found by name and identity, in mixed indexes."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import numpy as np
import pytest
from support.indexes.word_encoder import WordEncoder
from support.models.bundle_projects import BUNDLES, with_one_calibration
from tokenizers import Tokenizer

from quarry.engine import Encoder, Engine, build, open_encoder
from quarry.engine.bundled import path_by_identity
from quarry.engine.cli.commands import main

BUNDLE = BUNDLES / "multilingual" / "src" / "quarry_multilingual" / "multilingual-e5-small"
WORDS = WordEncoder()
DOCS = {
    "ar": "يخبز الخباز الخبز من الدقيق والخميرة والماء.",
    "de": "Die Katze schläft auf dem Dach des Hauses.",
    "el": "Το ηφαίστειο εκτοξεύει λάβα και στάχτη.",
    "en": "The Moon raises the tides of the sea twice a day.",
    "es": "El tren nocturno a la costa sale de la estación a las nueve.",
    "hi": "मधुमक्खियाँ फूलों से शहद बनाती हैं।",
    "ro": "Medicul vindecă bolnavii la spital cu medicamente.",
    "ru": "Шахматист объявил мат королю соперника.",
    "th": "ชาวนาปลูกข้าวในฤดูฝน",
    "tr": "Terzi, düğün için beyaz bir elbise dikti.",
    "vi": "Các nhà thiên văn học quan sát các vì sao bằng kính viễn vọng.",
    "zh": "银行提高了贷款的利率。",
    "he": "הסופר כתב רומן חדש על המלחמה.",
    "ja": "サッカーの試合で日本代表が勝った。",
    "ko": "학생들은 도서관에서 시험 공부를 한다.",
}
QUESTIONS = {
    "how is bread baked?": "ar",
    "where does the cat sleep?": "de",
    "eruption of a volcano": "el",
    "Mond und Gezeiten": "en",
    "when does the train leave?": "es",
    "honey from bees": "hi",
    "treatment of the sick": "ro",
    "chess": "ru",
    "planting rice": "th",
    "wedding dress": "tr",
    "telescope": "vi",
    "interest rate of a loan": "zh",
    "war novel": "he",
    "football match": "ja",
    "studying for an exam": "ko",
}


@pytest.fixture(scope="module", autouse=True)
def encoder() -> Encoder:
    """The encoder, which is loaded once."""
    return open_encoder(BUNDLE)


def test_it_is_found_by_name_and_by_identity(encoder: Encoder, capsys: pytest.CaptureFixture[str]) -> None:
    found = open_encoder("multilingual")
    assert (found.name, found.identity) == ("multilingual-e5-small", encoder.identity)
    assert path_by_identity(encoder.identity) == BUNDLE
    assert main(["encoders"]) == 0
    assert "multilingual: quarry-multilingual 1.0.0\n" in capsys.readouterr().out


def test_questions_find_documents_in_other_languages(tmp_path: Path) -> None:
    documents = [{"id": key, "text": text} for key, text in DOCS.items()]
    build(documents[::2], tmp_path / "index", encoder="multilingual")
    with Engine.open(tmp_path / "index", writable=True) as index:
        index.add(documents[1::2])
        index.commit()
        index.delete("en")
        index.add([documents[list(DOCS).index("en")]])
        index.commit()
    with Engine.open(tmp_path / "index") as index:  # by the identity, without a name
        found = {question: index.search(question, k=1, mode="dense")[0].id for question in QUESTIONS}
        assert found == QUESTIONS
        assert index.stats()["language"] == "auto"
        assert [index.search(text, k=1)[0].id for text in DOCS.values()] == list(DOCS)


def test_forms_of_the_same_text_have_the_same_vector(encoder: Encoder) -> None:
    for text, other in (
        ("Zürich naïve café", unicodedata.normalize("NFD", "Zürich naïve café")),
        ("full width 123", "ｆｕｌｌ　ｗｉｄｔｈ　１２３"),
        ("한국어", unicodedata.normalize("NFD", "한국어")),
        ("ﬁnal oﬃce", "final office"),
        ("ハングル", "ﾊﾝｸﾞﾙ"),
    ):
        np.testing.assert_array_equal(encoder.encode_query(text), encoder.encode_query(other), err_msg=text)


def test_no_character_of_its_scripts_is_unknown() -> None:
    tokenizer = Tokenizer.from_file(str(BUNDLE / "tokenizer.json"))
    others = "ქართული ენა հայերեն తెలుగు ಕನ್ನಡ മലയാളം ភាសាខ្មែរ አማርኛ ພາສາລາວ မြန်မာ سنڌي සිංහල ગુજરાતી ਪੰਜਾਬੀ বাংলা"
    for text in [*DOCS.values(), *others.split()]:
        assert "<unk>" not in tokenizer.encode(text).tokens, text


@pytest.mark.parametrize(
    ("text", "query", "words"),
    [
        ("قرأ الولد كتابًا في المكتبة", "كتابًا", ["كتابًا"]),
        ("הַיֶּלֶד קָרָא סֵפֶר", "קָרָא", ["קָרָא"]),
        ("यह हिन्दी की किताब है", "हिन्दी", ["हिन्दी"]),
        ("Der Zug nach Zu\u0308rich fa\u0308hrt", "Zürich", ["Zu\u0308rich"]),
        ("Ｔｏｋｙｏ　タワー", "tokyo", ["Ｔｏｋｙｏ"]),
        ("Các vì sao sáng", unicodedata.normalize("NFD", "sáng"), ["sáng"]),
        ("ราคาข้าวสูงขึ้น", "ข้าว", ["ข้าว"]),
    ],
)
def test_words_are_marked_where_they_are(text: str, query: str, words: list[str], tmp_path: Path) -> None:
    build([text, "the tide goes out"], tmp_path / "index", encoder=WORDS, language="none")
    with Engine.open(tmp_path / "index", encoder=WORDS) as index:
        hit = index.search(query, k=1, mode="lexical")[0]
        passage = hit.passages[0]
        assert passage.text in hit.text
        assert [passage.text[start:end] for start, end in passage.words] == words


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    """The encoder with a calibration for one language alone, as bundles of other encoders have it."""
    return open_encoder(with_one_calibration(BUNDLE, tmp_path_factory.mktemp("older") / "bundle"))


@pytest.mark.parametrize("shards", [None, 2])
@pytest.mark.parametrize("language", ["auto", "none"])
def test_hits_in_other_languages_are_relevant(
    shards: int | None, language: str, encoder: Encoder, older: Encoder, tmp_path: Path
) -> None:
    documents = [{"id": key, "text": text} for key, text in DOCS.items()]
    build(documents, tmp_path / "index", encoder=encoder, language=language, shards=shards)
    mean: dict[str, list[float]] = {"now": [], "older": [], "nonsense": []}
    with (
        Engine.open(tmp_path / "index", encoder=encoder) as index,
        Engine.open(tmp_path / "index", encoder=older) as before,
    ):
        for mode in ("hybrid", "dense"):
            for question, right in QUESTIONS.items():
                now = {hit.id: hit.relevance or 0 for hit in index.search(question, k=15, mode=mode)}
                then = {hit.id: hit.relevance or 0 for hit in before.search(question, k=15, mode=mode)}
                assert now.keys() == then.keys()
                assert all(now[key] >= then[key] for key in now)
                own = "de" if right == "en" else "en"
                assert now[own] == then[own] or question == "war novel"  # which is taken for German
                mean["now"].append(now[right])
                mean["older"].append(then[right])
            for question in ("install a printer driver", "wie wechselt man einen Reifen?"):
                mean["nonsense"] += [hit.relevance or 0 for hit in index.search(question, mode=mode)]
    assert np.mean(mean["now"]) > 0.7 > np.mean(mean["older"]) + 0.1
    assert np.mean(mean["nonsense"]) < 0.1


def test_relevance_in_one_language_is_the_same_in_every_digit(
    encoder: Encoder, older: Encoder, tmp_path: Path
) -> None:
    texts = {
        "tides": "The Moon raises the tides of the sea twice a day.",
        "bread": "The baker makes the bread with flour, yeast and water.",
        "train": "The night train to the coast leaves from the station at nine.",
    }
    build([{"id": key, "text": text} for key, text in texts.items()], tmp_path / "index", encoder=encoder)
    with (
        Engine.open(tmp_path / "index", encoder=encoder) as index,
        Engine.open(tmp_path / "index", encoder=older) as before,
    ):
        for question in ("how is bread baked?", "train", "Moon and tides", "2024", "install a printer driver"):
            for mode in ("hybrid", "dense", "lexical"):
                now, then = (each.search(question, mode=mode) for each in (index, before))
                assert [(hit.id, hit.relevance) for hit in now] == [(hit.id, hit.relevance) for hit in then]
        by_vector = index.search(vector=encoder.encode_query("Mond und Gezeiten"))  # of an unknown language
        then = before.search(vector=encoder.encode_query("Mond und Gezeiten"))
        assert [hit.relevance for hit in by_vector] == [hit.relevance for hit in then]
