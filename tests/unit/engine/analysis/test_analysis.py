"""Analysis of texts into terms."""

from __future__ import annotations

import random
import threading
import tracemalloc
import unicodedata

import pytest
import Stemmer

from quarry.engine.analysis.analyzer import ENGLISH_STOP_WORDS, MAX_TERM_BYTES, RULES, Analyzer
from quarry.engine.analysis.stop_words import LATER_STOP_WORDS, STOP_WORDS
from quarry.engine.analysis.words import normalize_text, split_compound, split_words
from quarry.formats.errors import InvalidSetting

ENGLISH = Analyzer()
PLAIN = Analyzer("none")


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("", []),
        (" \n\t .,;!? -- ' _ ", []),
        ("The cat and the hat", ["cat", "hat"]),
        ("Connections, connected; CONNECTING!", ["connect"] * 3),
        ("don't the model's models' it's they're", ["don't", "model", "model"]),
        ("a’b ’quoted’ ‘it’s’", ["a'b", "quot"]),
        ("(see below) [1] {x} \"quoted\" 'single'", ["see", "below", "1", "x", "quot", "singl"]),
        ("1990 3.14 007 10,000 1st", ["1990", "3.14", "007", "10", "000", "1st"]),
        ("naïve café thé", ["naiv", "cafe", "the"]),
        ("one—two–three…four/five", ["one", "two", "three", "four", "five"]),
        ("end.Start", ["endstart", "end", "start"]),
        ("What is this?", []),
        ('search AND (NOT lucene:syntax) OR "x"~2 ^3 *?', ["search", "lucen", "syntax", "x", "2", "3"]),
    ],
)
def test_words(text, terms):
    assert ENGLISH.terms(text) == terms


@pytest.mark.parametrize(
    ("identifier", "terms"),
    [
        ("parse_args", ["parseargs", "parse", "args"]),
        ("foo_bar.baz", ["foobarbaz", "foo", "bar", "baz"]),
        ("__init__", ["init"]),
        ("HTTPServer", ["httpserver", "http", "server"]),
        ("getHTTPResponse", ["gethttpresponse", "get", "http", "response"]),
        ("std::vector<int>", ["stdvector", "std", "vector", "int"]),
        ("C++ C# F#", ["c++", "c", "c#", "c", "f#", "f"]),
        ("c++11", ["c++", "c", "11"]),
        ("issue#12", ["issue", "12"]),
        ("node.js", ["nodejs", "node", "js"]),
        ("e-mail", ["email", "e", "mail"]),
        ("0x80070005", ["0x80070005"]),
        ("GPT-3.5 v1.2.3", ["gpt3.5", "gpt", "3.5", "v1.2.3"]),
        ("1990-1995", ["1990", "1995"]),
        ("U.S.A. Ph.D.", ["usa", "phd", "ph", "d"]),
        ("LLMs GPUs", ["llms", "llm", "gpus", "gpu"]),
        ("iPhone LaTeX GitHub H2O 3D", ["iphone", "phone", "latex", "github", "git", "hub", "h2o", "3d"]),
        ("log2Ceil GPT4All", ["log2ceil", "log2", "ceil", "gpt4all", "gpt4", "all"]),
        ("https://a.example.org/b?c=d", ["https", "aexampleorg", "a", "example", "org", "b", "c", "d"]),
        ("foo.foo", ["foofoo", "foo"]),
    ],
)
def test_identifiers(identifier, terms):
    assert PLAIN.terms(identifier) == terms


@pytest.mark.parametrize(
    "other", ["parse_args", "parseArgs", "ParseArgs", "parse-args", "parse.args", "PARSE_ARGS"]
)
def test_spellings_of_an_identifier_find_each_other(other):
    assert ENGLISH.terms(other) == ENGLISH.terms("parse_args")
    assert set(ENGLISH.terms("parse args")) < set(ENGLISH.terms(other))
    assert set(ENGLISH.terms("parseargs")) < set(ENGLISH.terms(other))


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("日本語の文章", ["日本", "本語", "語の", "の文", "文章"]),
        ("手。", ["手"]),
        ("東京Tower2号", ["東京", "tower2", "号"]),
        ("서울 사람", ["서울", "사람"]),
        ("สวัส", ["สว", "วั", "ัส"]),
        ("データ", ["デー", "ータ"]),
        ("\U00020000\U00020001", ["\U00020000\U00020001"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("Ελλάς", ["ελλασ"]),
        ("Straße STRASSE", ["strasse", "strasse"]),
        ("Привет", ["привет"]),
        ("\U0001f600 ok", ["ok"]),
        ("𐐀bc", ["𐐨bc"]),
    ],
)
def test_scripts(text, terms):
    assert PLAIN.terms(text) == terms


def test_forms_of_one_text_have_one_form():
    assert PLAIN.terms("caf\u0065\u0301 ﬁne ＡＢＣ①") == ["cafe", "fine", "abc1"]
    assert PLAIN.terms("co\u00adoperate") == ["cooperate"]
    assert PLAIN.terms("e\u2010mail e\u2011mail") == PLAIN.terms("e-mail e-mail")
    assert PLAIN.terms("نمی\u200cخواهم") == ["نمیخواهم"]


def test_lone_surrogates_are_no_words():
    assert PLAIN.terms("a\ud800b") == ["a", "b"]


@pytest.mark.parametrize("word", ["x" * 100, "é" * 100, "x" + "é" * 100, "0" * 100, "文" * 3 + "x" * 100])
def test_long_words_are_cut_off_at_whole_characters(word):
    terms = PLAIN.terms(word)
    assert max(len(term.encode()) for term in terms) in (MAX_TERM_BYTES, MAX_TERM_BYTES - 1)
    assert terms == PLAIN.terms(word + "yz")


@pytest.mark.parametrize("piece", ["a-", "aB", "é-", "文", "x", "a::", "_", ".", "a++"])
def test_a_text_without_spaces_takes_bounded_memory(piece):
    text = piece * 30_000
    tracemalloc.start()
    try:
        terms = Analyzer().terms(text)
        assert tracemalloc.get_traced_memory()[1] < 30 << 20
    finally:
        tracemalloc.stop()
    assert len(terms) <= 30_000


def test_other_languages_have_their_stemmers_and_stop_words():
    assert Analyzer("german").terms("die Häuser, daß") == ["haus"]
    assert Analyzer("french").terms("l’homme aimait ce qu’il est, l’été") == ["homm", "aim", "ete"]
    assert Analyzer("russian").terms("Я живём") == ["жив"]
    assert Analyzer("dutch_porter").terms("de het") == Analyzer("porter").terms("the and") == []


@pytest.mark.parametrize("language", sorted({**STOP_WORDS, **LATER_STOP_WORDS}))
def test_no_stop_word_is_a_term(language):
    if language not in Stemmer.algorithms():  # PyStemmer 3.0 has no stemmer for some
        with pytest.raises(InvalidSetting):
            Analyzer(language)
        return
    words = {**STOP_WORDS, **LATER_STOP_WORDS}[language].split()
    assert Analyzer(language).terms(" ".join([*words, *map(str.upper, words)])) == []
    assert not Analyzer(language).forms(words[0])


@pytest.mark.parametrize(
    ("language", "spellings"),
    [
        ("english", "café cafe CAFÉS cafés"),
        ("english", "résumé resume"),
        ("english", "Łódź Lodz"),
        ("german", "Müller Muller Mueller"),
        ("french", "élèves eleves ÉLÈVE"),
        ("french", "forêt fore\u0302t foret"),
        ("spanish", "canción canciones cancion"),
        ("portuguese", "corações coracoes"),
        ("turkish", "İstanbul istanbul Istanbul"),
        ("turkish", "kız kiz"),
        ("swedish", "människor manniskor"),
        ("polish", "żółty zolty"),
        ("greek", "άνθρωπος ανθρωπος"),
        ("russian", "ёлки елки"),
        ("none", "Việt Viê\u0323t viet"),
        ("none", "Đà da"),
        ("none", "œuvre oeuvre"),
    ],
)
def test_accents_make_no_difference(language, spellings):
    words, analyzer = spellings.split(), Analyzer(language)
    assert len({analyzer.terms_of_word(word) for word in words}) == 1
    for word in words:
        (located,) = analyzer.located_terms(f"({word})")
        assert (located.start, located.end) == (1, 1 + len(word))


@pytest.mark.parametrize("words", ["мой мои", "हिन्दी हनद", "กิน กน", "がき かき", "שָׁלוֹם שלום", "أب اب"])
def test_marks_of_other_scripts_are_kept(words):
    one, other = words.split()
    assert PLAIN.terms(one) != PLAIN.terms(other)


def test_earlier_rules_are_kept():
    for language in ("english", "none"):
        assert Analyzer.from_settings(language, 1).terms("Café Łódź") == ["café", "łódź"]
        assert Analyzer.from_settings(language, 1).prefix("Éc") == "éc"
    assert Analyzer.from_settings("french", 1).terms("la forêt") == ["la", "forêt"]


@pytest.mark.parametrize("language", ["klingon", "", "English", "en"])
def test_a_language_without_a_stemmer(language):
    with pytest.raises(InvalidSetting, match="english"):
        Analyzer(language)


@pytest.mark.parametrize("analyzer", [ENGLISH, PLAIN, Analyzer("finnish")])
def test_settings_make_the_same_analyzer(analyzer):
    assert Analyzer.from_settings(analyzer.language, RULES) == analyzer


@pytest.mark.parametrize(
    ("language", "rules"), [("english", RULES + 1), ("english", 0), ("klingon", RULES), (1, RULES)]
)
def test_settings_of_no_analyzer(language, rules):
    with pytest.raises(InvalidSetting):
        Analyzer.from_settings(language, rules)


def test_stop_words_are_folded():
    assert all(word == word.lower() for word in ENGLISH_STOP_WORDS)
    assert ENGLISH.terms(" ".join(ENGLISH_STOP_WORDS).upper()) == []


def test_evicted_entries_are_computed_again():
    small, words = Analyzer(cached_words=7), [f"word{number % 40}s-connected" for number in range(400)]
    for word in words:
        assert small.terms(word) == ENGLISH.terms(word)


def test_many_threads_at_once():
    shared = Analyzer(cached_words=50)
    texts = [" ".join(f"connecting{number * step % 301}ly" for number in range(60)) for step in range(1, 40)]
    expected = [ENGLISH.terms(text) for text in texts]
    wrong = []

    def read():
        wrong.extend(text for text, terms in zip(texts, expected, strict=True) if shared.terms(text) != terms)

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_terms_are_those_of_the_words_of_the_whole_text():
    generator = random.Random(5)
    characters = "aB3'’.-‐:+#_ ,(\t\n\x1c\x85\u00a0\u2028´ﬁé\u0301\u00ad\u200d中日กàἀ\U0001d4d0😀"
    for _ in range(3000):
        text = "".join(generator.choices(characters, k=generator.randrange(40)))
        assert ENGLISH.terms(text) == [term for word in split_words(text) for term in ENGLISH.terms_of_word(word)]


def test_letters_and_digits_are_not_split():
    generator = random.Random(6)
    for _ in range(2000):
        word = "".join(generator.choices("abz019é²ǆⅣ١", k=generator.randrange(1, 9)))
        whole, parts = split_compound(normalize_text(word))
        folded = [unicodedata.normalize("NFD", each.casefold()) for each in (whole, *parts) if each]
        plain = ["".join(letter for letter in each if not unicodedata.combining(letter)) for each in folded]
        assert PLAIN.terms(word) == list(dict.fromkeys(plain))


@pytest.mark.parametrize(("language", "word"), [("greek", "όταν"), ("greek", "ίδιο"), ("arabic", "ـــ")])
def test_a_word_whose_stem_is_empty_is_its_term(language, word):
    """The stemmers leave nothing of some words, and no empty term can be stored."""
    (term,) = Analyzer(language, rules=2).terms(word)  # later rules have the first as a stop word
    assert term == Analyzer("none").terms(word)[0]
