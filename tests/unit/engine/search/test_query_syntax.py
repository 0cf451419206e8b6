"""Quotation marks and asterisks in queries: parsing, matches, and explanations."""

from __future__ import annotations

import random

import pytest
from support.indexes.sharded import columns
from support.indexes.small_index import changed_copy, resign
from support.indexes.word_encoder import WordEncoder

from quarry import engine
from quarry.engine import Engine
from quarry.engine.analysis.analyzer import RULES, Analyzer
from quarry.engine.search.passages import QueryWords
from quarry.engine.search.query import MAX_PREFIXES, find_phrases, parse_query, parse_words
from quarry.formats.container.directory import Directory
from quarry.formats.errors import CorruptFile, InvalidSetting

ENCODER = WordEncoder()
DOCUMENTS = {
    "near": 'The "red fox" jumps over the dog.',
    "far": "A fox that is red: no dog.",
    "title": "Nothing else.",
    "compound": "A red-fox terrier, international.",
    "pipe": 'A 5" pipe and a 3" pipe of internal steel.',
}


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    docs = [
        {"id": key, "text": text, "title": "Red foxes" if key == "title" else ""}
        for key, text in DOCUMENTS.items()
    ]
    folder = tmp_path_factory.mktemp("quoted") / "index"
    engine.build(docs, folder, encoder=ENCODER)
    with Engine.open(folder, encoder=ENCODER) as opened:
        yield opened


@pytest.mark.parametrize(
    ("text", "free", "phrases"),
    [
        ('a "red fox" dog', ["dog"], ["red fox"]),
        ('"red fox', ["red", "fox"], []),  # not closed
        ('red fox"', ["red", "fox"], []),
        ('"red" "fox"', [], ["red", "fox"]),
        ('"red fox" "dog', ["dog"], ["red fox"]),
        ('5" pipe 3" steel', ["5", "pipe", "3", "steel"], []),
        ('a 5" pipe ("red fox")', ["5", "pipe"], ["red fox"]),
        ('"" "?!" dog', ["dog"], []),
        ('""red""', [], ["red"]),
        ("\u201cred fox\u201d", ["red", "fox"], []),  # typographic quotation marks
        ('"red fo*"', [], ["red fo*"]),
        ("fo* dog", ["dog", "fo*"], []),
        ("(fo*, do*)", ["fo*", "do*"], []),
        ("FO* fo*", ["fo*", "fo*"], []),
        ("* ** f* *fo* fo** fo*x fo *", ["f", "fo", "fo", "fo", "x", "fo"], []),
        ("parse_ar* e-ma*", ["parsear*", "ema*"], []),
        ("東* 東京*", ["東京", "東*"], []),
        ("the* of*", ["the*", "of*"], []),
        ("", [], []),
    ],
)
def test_operators(text, free, phrases):
    parsed = parse_query(text, Analyzer(), find_phrases(text))
    assert list(parsed.free) == free
    assert list(parsed.phrases) == phrases


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ('"red fox"', {"near", "compound", "title"}),
        ('"fox red"', set()),
        ('"red fox" "dog"', {"near"}),
        ('"red fox" dog', {"near", "compound", "title"}),
        ('"fox that is red"', {"far"}),
        ('"fox is that red"', set()),
        ("internat*", {"compound"}),
        ("intern*", {"compound", "pipe"}),
        ("international", {"compound"}),
        ("zzz*", set()),
        ('5" pipe 3" hose', {"pipe"}),
        ('"the"', set()),  # stop words alone are not a condition, and match nothing
    ],
)
def test_what_is_found(index, query, found):
    assert {hit.id for hit in index.search(query, mode="lexical", operators=True)} == found


def test_hybrid_search_finds_only_documents_with_the_phrases(index):
    assert {hit.id for hit in index.search('"red fox" pipe', operators=True)} == {"near", "compound", "title"}
    assert len(index.search("internat* pipe", operators=True)) == len(DOCUMENTS)
    assert index.search('"fox red"', operators=True) == []
    several = index.search(['"red fox"', "pipe", '"red fox" "dog"', "dog"], operators=True)
    assert [len(hits) for hits in several] == [3, 5, 1, 5]
    for query, hits in zip(['"red fox"', "pipe", '"red fox" "dog"', "dog"], several, strict=True):
        assert columns(index.search(query, operators=True)) == columns(hits)


def test_without_operators_signs_are_punctuation(index):
    plain = index.search("red fox internat", mode="lexical")
    assert columns(index.search('"red fox" internat*', mode="lexical", operators=False)) == columns(plain)
    assert len(index.search('"fox red"')) == len(DOCUMENTS)
    assert len(index.search('"fox red"', mode="dense")) == len(DOCUMENTS)
    with pytest.raises(InvalidSetting, match="operators"):
        index.search("fox", operators="no")


def test_the_words_of_a_phrase_score_like_others(index):
    plain = {hit.id: hit.score for hit in index.search("red fox", mode="lexical")}
    assert all(hit.score == plain[hit.id] for hit in index.search('"red fox"', mode="lexical", operators=True))


def test_phrases_raise_documents_that_have_them(index):
    words = {hit.id: hit for hit in index.search("the red fox", mode="lexical", operators=False)}
    hits = index.search('the "red fox"', mode="lexical", explain=True)
    assert [hit.id for hit in hits[-1:]] == ["far"]
    raised = {hit.id: hit.score - words[hit.id].score for hit in hits}
    assert {name for name, score in raised.items() if score > 0} == {"near", "title", "compound"}
    assert raised["near"] == pytest.approx(
        hits[[hit.id for hit in hits].index("near")].terms['"red fox'], rel=1e-4
    )
    assert {hit.id: hit.relevance for hit in hits} == {name: hit.relevance for name, hit in words.items()}
    assert index.search('"red fox"')[0].id != "far"
    for query in ('"fox red"', '"red"', '"the"'):
        assert columns(index.search(query, mode="lexical")) == columns(
            index.search(query, mode="lexical", operators=False)
        )
    assert {hit.id for hit in index.search('"red fxo"', mode="lexical")} == {"near", "far", "title", "compound"}


def test_generated_phrases_rank_their_document_first(tmp_path):
    """Beside each are two shorter documents with the same words apart, which words alone rank before it."""
    generator, queries, docs = random.Random(5), [], []
    words = ["".join(generator.choices("abdefgiklmnoprtu", k=7)) for _ in range(100)]
    for number in range(30):
        first, second, rest = words[number], words[number + 30], generator.sample(words[60:], 9)
        queries.append(f"{first} {second}")
        texts = {
            "phrase": [*rest[:4], first, second, *rest[4:]],
            "apart": [second, *rest[:5], first],
            "reverse": [second, first, *rest[:4]],
        }
        docs += [{"id": f"{name} {number}", "text": " ".join(each)} for name, each in texts.items()]
    engine.build(docs, tmp_path / "index", encoder=ENCODER)
    with Engine.open(tmp_path / "index", encoder=ENCODER) as index:
        for mode in ("lexical", "hybrid"):
            for number, query in enumerate(queries):
                assert index.search(query, k=1, mode=mode)[0].id != f"phrase {number}"
                assert index.search(f'where is "{query}"', k=1, mode=mode)[0].id == f"phrase {number}"


CONDITIONS = [
    ("fox -dog", {"compound", "title"}),
    ('fox -"red fox"', {"far"}),
    ("fox +dog", {"near", "far"}),
    ('+"red fox" nothing', {"near", "title", "compound"}),
    ("fox color:red", {"near"}),
    ("fox -color:red", {"far", "title", "compound"}),
    ("number:3 fox", {"far"}),
    ('fox color:"dark blue"', {"far"}),
    ("fox id:near", {"near"}),
    ("new:true fox", {"near"}),
    ("fox -the", {"near", "far", "title", "compound"}),
    ("color:red", {"near"}),
    ("-dog", {"title", "compound", "pipe"}),
    ("-e-mail -international fox", {"near", "far", "title"}),
    ("fox -", {"near", "far", "title", "compound"}),
]


@pytest.mark.parametrize("shards", [None, 2])
def test_conditions(tmp_path, shards):
    metadata = {"near": {"color": "red", "new": True}, "far": {"color": "dark blue", "number": 3}}
    docs = [
        {
            "id": key,
            "text": text,
            "title": "Red foxes" if key == "title" else "",
            "metadata": metadata.get(key, {}),
        }
        for key, text in DOCUMENTS.items()
    ]
    engine.build(docs, tmp_path / "index", encoder=ENCODER, shards=shards)
    with Engine.open(tmp_path / "index", encoder=ENCODER) as index:
        for query, found in CONDITIONS:
            hits = index.search(query, mode="lexical", operators=True, total=True)
            assert ({hit.id for hit in hits}, hits.total) == (found, len(found)), query
        dense = {hit.id for hit in index.search("fox -dog", operators=True)}
        assert dense == {"compound", "title", "pipe"}
        assert [hit.id for hit in index.search("-dog color:red", operators=True)] == []
        assert len(index.search("fox -dog", operators=False)) == len(DOCUMENTS)
        assert index.facets("id", query="fox -dog", operators=True).n_documents == 2


PASSAGES = [  # a query, and what the title or the text of a passage must have, and must not have
    ("wine +glass", ["glass"], []),
    ('wine "red fox"', ["red fox"], []),
    ('wine -"red fox"', [], ["red fox"]),
    ("wine -glass", [], ["glass"]),
    ('"red fox" +glass', ["red fox", "glass"], []),
    ('"fox red"', ["fox red"], []),
    ('wine +tale "the" -of', ["tale"], []),
]


@pytest.mark.parametrize("shards", [None, 2])
def test_conditions_of_passages(tmp_path, shards):
    docs = [
        {"id": "a", "title": "Tale", "text": "Wine and a red fox. Wine in a glass. Red wine for one fox."},
        {"id": "b", "text": "A glass of red wine. Red fox and wine in a glass. Wine or a fox."},
        {"id": "deleted", "text": "Wine and a red fox. Red fox and a glass of wine."},
    ]
    engine.build(docs[:1], tmp_path / "index", encoder=ENCODER, shards=shards, passage_words=8)
    with Engine.open(tmp_path / "index", encoder=ENCODER, writable=True) as index:
        index.add(docs[1:])
        index.commit()
        index.delete(["deleted"])
        index.commit()
        every = index.search("wine", mode="dense", unit="passage", k=99)
        assert len(every) > 4
        for query, has, lacks in PASSAGES:
            texts = {(hit.id, hit.passage): f"{hit.title} {hit.text}".lower() for hit in every}
            found = {
                key
                for key, text in texts.items()
                if all(word in text for word in has) and not any(word in text for word in lacks)
            }
            for options in ({"mode": "lexical"}, {"mode": "hybrid"}, {"sort": "-id"}):
                hits = index.search(query, k=99, unit="passage", operators=True, total=True, **options)
                assert ({(hit.id, hit.passage) for hit in hits}, hits.total) == (found, len(found)), (
                    query,
                    options,
                )


@pytest.mark.parametrize("mode", ["lexical", "hybrid"])
def test_quoted_words_are_not_corrected(index, mode):
    assert index.search('"red fxo"', mode=mode, operators=True) == []
    assert index.search('"intrenational"', mode=mode, operators=True) == []
    hit = index.search('terier "red fox"', mode=mode, operators=True, explain=True, k=3)[0]
    assert (hit.id, set(hit.mistyped)) == ("compound", {"terrier"})


def test_explanations_mark_the_words_of_phrases_and_prefixes(index):
    def marked(query):
        hit = next(hit for hit in index.search(query, mode="lexical", explain=True) if hit.id == "near")
        return [hit.text[word.start : word.end] for word in hit.words], [word.terms for word in hit.words]

    assert marked('"red fox" dog') == (["red", "fox", "dog"], [("red",), ("fox",), ("dog",)])
    assert marked('"the dog" jump*') == (["jumps", "dog"], [("jump*",), ("dog",)])
    assert set(index.search("jump*", mode="lexical", explain=True)[0].terms) == {"jump*"}
    hit = index.search('"red fox" is', mode="lexical", explain=True, k=9)[0]
    assert hit.passages[0].words
    far = index.search('"that is red" no', mode="lexical", explain=True)[0]
    assert [far.text[word.start : word.end] for word in far.words] == ["red"]  # stop words are not marked


def test_a_quoted_word_is_marked_inside_of_its_phrase_only(tmp_path):
    engine.build([{"id": "a", "text": "fox and red fox, red dog, red fox"}], tmp_path / "index", encoder=ENCODER)
    with Engine.open(tmp_path / "index", encoder=ENCODER) as opened:
        hit = opened.search('"red fox"', explain=True, operators=True)[0]
        assert [(word.start, hit.text[word.start : word.end]) for word in hit.words] == [
            (8, "red"),
            (12, "fox"),
            (26, "red"),
            (30, "fox"),
        ]
        hit = opened.search('"red fox" red', explain=True, operators=True)[0]
        assert len([word for word in hit.words if word.terms == ("red",)]) == 3


def test_facets_count_documents_with_the_phrase(index):
    facets = index.facets("id", query='"red fox"', operators=True)
    assert {each.value for each in facets.values} == {"near", "compound", "title"}
    assert index.facets("id", query="internat*").n_documents == 1
    as_words = index.facets("id", query='"red fox"', operators=False)
    assert {each.value for each in as_words.values} == {"near", "far", "compound", "title"}
    assert index.facets("id", query="jum*").n_documents == 1
    assert index.facets("id", query="jum*", operators=False).n_documents == 0
    with pytest.raises(InvalidSetting, match="operators is not a flag"):
        index.facets("id", query="fox", operators="no")


def test_a_phrase_does_not_begin_in_the_title_and_end_in_the_text(tmp_path):
    documents = [{"id": "city", "title": "New York", "text": "City of lights"}]
    engine.build(documents, tmp_path / "idx", encoder=ENCODER)
    with Engine.open(tmp_path / "idx", encoder=ENCODER) as opened:
        assert opened.search('"york city"', mode="lexical", operators=True) == []
        for phrase in ('"new york"', '"city of lights"'):
            assert [hit.id for hit in opened.search(phrase, mode="lexical", operators=True)] == ["city"]


@pytest.mark.parametrize("shards", [None, 3])
def test_single_characters_are_found_wherever_they_are(tmp_path, shards):
    rng = random.Random(0)
    texts = {
        str(n): "".join(rng.choices("東京都水火山\U00020000 、aб", k=rng.randint(1, 9))) + "x" for n in range(60)
    }
    engine.build(
        [{"id": doc_id, "text": text} for doc_id, text in texts.items()],
        tmp_path / "index",
        encoder=ENCODER,
        shards=shards,
        threads=1,
    )
    with Engine.open(tmp_path / "index", encoder=ENCODER, writable=True, threads=1) as index:
        index.delete(["7", "8"])
        index.commit()
        del texts["7"], texts["8"]
        for character in "東京都水火山\U00020000":
            wanted = {doc_id for doc_id, text in texts.items() if character in text}
            for query in (character, f"{character} ", f"{character}*"):
                hits = index.search(query, k=100, mode="lexical", explain=True)
                assert {hit.id for hit in hits} == wanted
                for hit in hits:
                    places = [place for place, other in enumerate(hit.text) if other == character]
                    assert [(word.start, word.end) for word in hit.words] == [(at, at + 1) for at in places]
                    assert {term for word in hit.words for term in word.terms} == {f"{character}*"}
            assert index.facets("id", query=character).n_documents == len(wanted)
            hybrid = index.search(character, k=3, dense_weight=0)
            assert {hit.id for hit in hybrid} <= wanted
        assert len(index.search("鳥", mode="lexical")) == 0


def test_single_characters(tmp_path):
    texts = {str(n): "".join(chr(0x4E00 + (7 * n + m) % 150) for m in range(20)) for n in range(60)}
    engine.build([{"id": key, "text": text} for key, text in texts.items()], tmp_path / "index", encoder=ENCODER)
    with Engine.open(tmp_path / "index", encoder=ENCODER) as index:
        for first in range(0, 150, 30):
            query = " ".join(chr(0x4E00 + first + number) for number in range(30))
            hits = index.search(query, k=100, mode="lexical", typos=False)
            assert {hit.id for hit in hits} == {key for key, text in texts.items() if set(query) & set(text)}


def test_terms_that_are_no_text_are_refused(tmp_path):
    engine.build([{"id": "city", "text": "東京"}], tmp_path / "index", encoder=ENCODER)

    def damage(part):
        assert "東京".encode() in part.data
        part.data = bytearray(part.data.replace("東京".encode(), b"\xe3\xe3\x80\x80\x80\x80"))
        part.sign()

    (path,) = (tmp_path / "index").glob("*.seg")
    resign(Directory(tmp_path / "index"), path.name, damage)
    with Engine.open(tmp_path / "index", encoder=ENCODER) as index, pytest.raises(CorruptFile, match="not UTF-8"):
        index.search("京", mode="lexical")


def test_the_first_prefixes_count():
    analyzer = Analyzer()
    characters = [chr(0x4E00 + number) for number in range(MAX_PREFIXES + 5)]
    prefixes = [f"{character}*" for character in characters]
    query = " ".join(characters)
    for parse in (parse_query, parse_words):
        assert list(parse(f"{query} {query} fox", analyzer).free) == ["fox", *2 * prefixes[:MAX_PREFIXES]]
    written = [f"fox{number}*" for number in range(MAX_PREFIXES + 5)]
    assert list(parse_query(" ".join(written), analyzer).free) == written[:MAX_PREFIXES]
    assert len(parse_words(" ".join(written), analyzer).free) == len(written)  # words
    both = parse_query(f"{query} {written[0]} {written[1]}", analyzer).free
    assert sorted(both) == sorted([*written[:2], *prefixes[: MAX_PREFIXES - 2]])


def test_a_quotation_mark_before_a_long_word_is_parsed():
    """It took hours: the time grew with the square of the length."""
    assert find_phrases('"' + "a" * 1_000_000) == ()
    assert find_phrases('"' + "a" * 1_000_000 + '"') == ("a" * 1_000_000,)


def test_characters_that_are_several_are_marked_as_a_whole():
    words = QueryWords({"メー": 1.0, "かメ": 1.0}, "english", RULES, phrases=("かメ", "メー"))
    assert [(word.start, word.end) for word in words.find("か\u334d")] == [(0, 2)]  # メートル as one character
    vowel = QueryWords({"\u0e35*": 1.0, "\u0e14\u0e35": 1.0}, "english", RULES)
    assert [(word.start, word.end) for word in vowel.find("\u0e17\u0e33\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35")] == [
        (6, 8)
    ]
    quoted = QueryWords({"メー": 1.0}, "english", RULES, frozenset({"メー"}), ("メー",))
    assert [(word.start, word.end) for word in quoted.find("\u334d")] == [(0, 1)]


def test_marks_of_single_characters(tmp_path):
    texts = {"joined": "東京都の水", "decomposed": "これか\u3099です", "narrow": "ｶﾒﾗ"}
    engine.build([{"id": key, "text": text} for key, text in texts.items()], tmp_path / "index", encoder=ENCODER)
    marked = {
        ("京", "joined"): ["京"],
        ("京 水", "joined"): ["京", "水"],
        ("東京 京", "joined"): ["東京"],  # the character is in a bigram that matches
        ("東 都の", "joined"): ["東", "都の"],
        ("メ", "narrow"): ["ﾒ"],
        ("が", "decomposed"): ["れか\u3099で"],  # two characters of the text: the bigrams that have it
    }
    with Engine.open(tmp_path / "index", encoder=ENCODER) as index:
        for (query, doc_id), wanted in marked.items():
            (hit,) = index.search(query, mode="lexical", explain=True)
            assert hit.id == doc_id
            assert [hit.text[word.start : word.end] for word in hit.words] == wanted, query
            assert [hit.passages[0].text[low:high] for low, high in hit.passages[0].words] == wanted, query


def test_prefixes_do_not_find_stop_words(index):
    for prefix, found in (("th*", set()), ("ov*", {"near"}), ("noth*", {"title"})):
        assert {hit.id for hit in index.search(prefix, mode="lexical")} == found


def test_the_dotted_capital_of_turkish_is_the_same_letter(tmp_path):
    for spelled, other in (("İstanbul", "istanbul"), ("istanbul", "İstanbul")):
        docs = [{"id": "city", "text": f"{spelled} güzel"}, {"id": "other", "text": "Ankara"}]
        engine.build(docs, tmp_path / "index", encoder=ENCODER, language="turkish", overwrite=True)
        with Engine.open(tmp_path / "index", encoder=ENCODER) as opened:
            for query in (spelled, other):
                assert [hit.id for hit in opened.search(query, mode="lexical", typos=False)] == ["city"]


def test_operators_and_marked_words_ignore_accents(tmp_path):
    texts = {"with": "A naïve cafe\u0301 in Zürich", "without": "The naive cafe of Zurich", "other": "Bern"}
    engine.build([{"id": name, "text": text} for name, text in texts.items()], tmp_path / "index", encoder=ENCODER)
    with Engine.open(tmp_path / "index", encoder=ENCODER) as opened:
        for query in ("naive", "NAÏVE", "zür*", "zuric*", '"naive café"', '"naïve cafe"', "cafés"):
            hits = opened.search(query, mode="lexical", typos=False)
            assert {hit.id for hit in hits} == {"with", "without"}, query
        (marked,) = {
            tuple(passage.text[low:high] for low, high in passage.words)
            for hit in opened.search("naive cafe zurich", mode="lexical")
            if hit.id == "with"
            for passage in hit.passages
        }
    assert marked == ("naïve", "cafe\u0301", "Zürich")


def test_an_index_keeps_the_rules_of_its_analyzer(tmp_path):
    engine.build([], tmp_path / "index", encoder=ENCODER, language="french")
    (path,) = (tmp_path / "index").glob("MANIFEST-*")
    rules = ("fields", "settings", "analysis_rules")

    def change(part):
        part.contents = changed_copy(part.contents, rules, 1)

    resign(Directory(tmp_path / "index"), path.name, change)
    with Engine.open(tmp_path / "index", encoder=ENCODER, writable=True) as opened:
        opened.add([{"id": "with", "text": "un été à la mer"}, {"id": "without", "text": "un ete a la mer"}])
        opened.commit()
        for query, found in (("été", {"with"}), ("ete", {"without"}), ("la", {"with", "without"})):
            assert {hit.id for hit in opened.search(query, mode="lexical", typos=False)} == found
