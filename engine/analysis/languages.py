"""The language of a text, guessed from its script, frequent words, endings and letters.

Of texts of a hundred words nearly all are right, of a few words most (bench/README.md, "Languages"). A text
without any sign counts as English, or as the most frequent language of its script.
"""

from __future__ import annotations

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from itertools import chain
from typing import NamedTuple

from quarry.engine.analysis.stop_words import LATER_STOP_WORDS, STOP_WORDS
from quarry.engine.analysis.words import is_unspaced, split_words

__all__ = ["LanguageEvidence", "find_language", "weigh_languages"]

_MAX_CHARACTERS = 1000  # of a text that are read: more change nothing, and take time
_ENDING, _LETTER = "-", "*"  # before those among the signs; no word begins so
_ENDING_WEIGHT = 0.3  # what an ending counts, where a frequent word counts 1
_SCRIPT_WEIGHT = 0.01  # what a script counts, if there is nothing else
_OWN_SHARE = 0.5  # of the score of its likeliest language: with more a text may be of another one, too
_LEAST_WORDS = 2  # of a text that is not in doubt, or characters without spaces
_LEAST_SURE = 1.0  # score that a language that is not in doubt is above: more than one word of it
_UNSPACED_SHARE = 1 / 3  # of the letters of a text: ideographs say more than letters do

_Weighted = tuple[list[str], float]  # languages that a sign speaks for, and how much for each


class _Signs(NamedTuple):
    """What texts of a language have, between white space, besides its stop words.

    Attributes:
        words: frequent words.
        endings: endings of words, of two to four letters.
        letters: letters beyond ASCII.
    """

    words: str = ""
    endings: str = ""
    letters: str = ""


# Languages whose stemmer every supported version of PyStemmer has; their order decides ties.
_STEMMED = {
    "english": _Signs(
        "a about after all also an and are as at be been between but by can did do does during first for"
        " from had has have he her his how if in into is it its many may more most much name new no not of"
        " on one only or other our out over people she since so such than that the their them then there"
        " these they this through time to two under up us use used was we were what when where which while"
        " who whose why will with would year years you your",
        "al ck ed ful ght gy ing ings ity ly ness ous ry sh th tion tions",
    ),
    "german": _Signs(
        "durch gibt hatte jahr jahre mehr neue neuer neues seit sind unter wann warum welche welchen"
        " welcher welches wer werden wie viel viele wird wo wurde wurden zum zur zwei",
        "chen cht eiten eln heit ier isch ische ischen keit lich liche lichen schaft ßen tig tige tz ung ungen",
        "äöüß",
    ),
    "spanish": _Signs(
        "año años cómo cuál cuáles cuándo cuánta cuántas cuánto cuántos dónde fue hacer nueva nuevo parte"
        " puede quién quiénes según son sus tipo",
        "ada adas ado ados ando ar as ciones ción dad dades er ez ica ico iendo miento mientos os ron ía ías",
        "áéíñóúü",
    ),
    "french": _Signs(
        "année années combien comme comment deux fait nouveau nouvelle où peut plus pourquoi quand quel"
        " quelle quelles quels selon",
        "aient ait aux eau eaux ement eur eurs euse ez ées ée és ique iques ité ment oir tion tions",
        "àâçèéêëîïôùûüœ",
    ),
    "italian": _Signs(
        "anni anno come dove due essere fatto nuova nuovo perché più può quale quali quando quanti quanto tra",
        "aggio are ata ate ati ato ere gli i ica ico ire ità mente ono zione zioni",
        "àèéìòù",
    ),
    "portuguese": _Signs(
        "ano anos como foi mais não nova novo onde pode porquê qual quais quando quanto quantos segundo são você",
        "ada adas ado ados agem ando as dade dades endo inho mente os ão ção ções ões",
        "áâãàçéêíóôõú",
    ),
    "dutch": _Signs(
        "deze geen hoe hoeveel jaar kunt nieuw nieuwe twee waar waarom wanneer welk welke werden",
        "aar atie aties heid ijk ijn ing ingen jes lijk lijke oek oor sch tje",
        "ëï",
    ),
    "romanian": _Signs(
        "ani anul care câte câți cum doi nou nouă poate unde când",
        "ați ească ește elor ilor lui ul ului ție ții",
        "ăâîșțşţ",
    ),
    "turkish": _Signs(
        "hangi iki kimdir nedir yeni yıl yılında",
        "dan den dır dir inde lar ler ları leri ların lerin lik lık mak mek nin nın yor ında",
        "çğıöşü",
    ),
    "swedish": _Signs(
        "finns hur inte ny nya nytt när två varför vilka vilken vilket år",
        "ande ar arna erna het igt liga ning ningar or skt",
        "åäö",
    ),
    "danish": _Signs(
        "af findes hvilke hvilken hvilket hvordan hvorfor hvornår ikke ny nye nyt år",
        "ede else elser ende erne hed ning ninger skab",
        "æøå",
    ),
    "norwegian": _Signs(
        "av finnes hvilke hvilken hvilket hvordan hvorfor ikke ny nye nytt når år",
        "else elser ende ene het ning ninger sjon skap",
        "æøå",
    ),
    "finnish": _Signs(
        "kaksi miksi mikä milloin missä miten mukaan oli ovat sekä uusi vuonna vuosi",
        "aan een iin inen lla lle llä nen sen ssa ssä sta stä tta ttä uus ään",
        "äö",
    ),
    "hungarian": _Signs(
        "hány két lehet mikor új év évben",
        "ak ban ben ból ek ek ett ek nak nek ok ott ság ség tás tés val vel ből",
        "áéíóöőúüű",
    ),
    "catalan": _Signs(
        "any anys dos dues fer nou nova pot",
        "ats cions ció nya tat tats",
        "çàèéíïòóúü",
    ),
    "indonesian": _Signs(
        "baru dua jumlah tahun",
        "kan nya",
    ),
    "basque": _Signs(),
    "estonian": _Signs(letters="äõöüšž"),
    "irish": _Signs(letters="áéíóú"),
    "lithuanian": _Signs(letters="ąčęėįšųūž"),
    "serbian": _Signs(letters="čćđšžђјљњћџ"),
    "russian": _Signs(letters="ёыэъщ"),
    "greek": _Signs(),
    "arabic": _Signs(),
    "hindi": _Signs(),
    "nepali": _Signs(),
    "armenian": _Signs(),
    "tamil": _Signs(),
}
# Others, which are told from them, and are not stemmed.
_OTHERS = {
    "polish": _Signs(
        "dwa ile lat można nowa nowe nowy roku",
        "anie ch ców ego enie ości ość owa owe owy ów ska ski ych ymi",
        "ąćęłńóśźż",
    ),
    "czech": _Signs(
        "dva kolik let lze nová nové nový roku",
        "ého ení ost osti ová ové ový ská ský ování ání ých",
        "áčďéěíňóřšťúůýž",
    ),
    "vietnamese": _Signs(
        "anh bao bằng bị bởi các cái cho chỉ chưa có của cùng cũng do gì hay hoặc họ khi không là lên lại"
        " mà một mỗi nhau nhiều như nhưng những này nào nên nếu ra rất rằng sao sau sẽ theo thì trong trên"
        " trước từ tại tôi vào và vì vẫn về với vậy việc ở đang đây đã được đều để đến",
        "",
        "ăâđêôơưáàảãạấầẩẫậắằẳẵặéèẻẽẹếềểễệíìỉĩịóòỏõọốồổỗộớờởỡợúùủũụứừửữựýỳỷỹỵ",
    ),
    "ukrainian": _Signs(
        "але в від для до з за на не по про та у що як і його її",
        "",
        "іїєґ",
    ),
    "bulgarian": _Signs(
        "в да до е за и като как на не от по се си с са това този които който",
        "",
        "ъщ",
    ),
    "persian": _Signs(letters="پچژگ"),
    "urdu": _Signs(
        "اس اور ایک تھا تھی تک جو سے میں نے نہیں پر کا کر کو کی کے کہ ہے ہیں یہ",
        "",
        "ٹڈڑںہھے",
    ),
    "marathi": _Signs(
        "आणि आहे आहेत एक या व हा ही हे होते होता च मध्ये ते तो ती",
    ),
    "chinese": _Signs(letters="的了是在这這们們个個么麼为為哪谁誰吗嗎和与與什"),
    "japanese": _Signs(
        letters="あいうえおかがきくけこごさざしすせそただちっつてでとどなにねのはばびへほまみむめもやよらりるれろわをん"
        "アイウエオカガキギクグコゴサザシジスズセタダチッテデトドナニネノハバパビピフブプマミムメモャュョラリルレロワンー"
    ),
}
_JAPANESE_SCRIPTS = ("HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA")  # beside ideographs
_BY_SCRIPT = {
    "": "english",
    "LATIN": "english",
    "CYRILLIC": "russian",
    "GREEK": "greek",
    "ARABIC": "arabic",
    "DEVANAGARI": "hindi",
    "ARMENIAN": "armenian",
    "TAMIL": "tamil",
}


class LanguageEvidence(NamedTuple):
    """What speaks for each language of a text.

    Attributes:
        is_spaced: whether it has spaces between words, so that signs of all kinds count, not letters alone.
        scripts: the number of words, or without spaces of characters, of each script.
        scores: how much the signs of each language count; those without one are missing.
    """

    is_spaced: bool
    scripts: Mapping[str, float]
    scores: Mapping[str, float]

    def is_foreign_to(self, other: LanguageEvidence) -> bool:
        """Return whether this is certainly of another language than another text; False in doubt.

        One word is in doubt in any script: it may be a name, and its vector says little.
        """
        if min(sum(each.scripts.values()) for each in (self, other)) < _LEAST_WORDS:
            return False
        are_sure = min(max(each.scores.values(), default=0.0) for each in (self, other)) > _LEAST_SURE
        return _are_apart(self.scripts, other.scripts) or (are_sure and _are_apart(self.scores, other.scores))


def _likeliest(weights: Mapping[str, float]) -> str:
    """Return the name with the most weight, of several the first one; "" without any."""
    return max(weights, key=weights.__getitem__, default="")


def _are_apart(weights: Mapping[str, float], others: Mapping[str, float]) -> bool:
    """Return whether what is likeliest by each is unlikely by the other."""
    return bool(weights and others) and all(
        one.get(_likeliest(two), 0.0) < _OWN_SHARE * max(one.values())
        for one, two in ((weights, others), (others, weights))
    )


_EXPECTED = dict.fromkeys((*_STEMMED, "none"), 0.0)


def find_language(text: str, expected: Mapping[str, float] = _EXPECTED) -> str:
    """Return the language of a text, as the analyzer names it; "none" for one that is not stemmed.

    Scripts without spaces, such as Chinese and Thai, are not stemmed.

    Args:
        text: the text, of which the beginning is read.
        expected: the languages that it may have, with the logarithm of how often each is expected.
    """
    found = weigh_languages(text)
    if not found.is_spaced:
        return "none"
    scores = {**found.scores} or {_BY_SCRIPT.get(_likeliest(found.scripts), "none"): _SCRIPT_WEIGHT}
    scores["none"] = max((score for language, score in scores.items() if language not in _STEMMED), default=0.0)
    return max(
        (language for language in _EXPECTED if language in expected),
        key=lambda language: expected[language] + scores.get(language, 0.0),
        default="none",
    )


def weigh_languages(text: str) -> LanguageEvidence:
    """Return what speaks for each language of a text, of which the beginning is read."""
    words: list[str] = []
    characters: list[str] = []  # of scripts without spaces
    for word in map(str.casefold, split_words(text[:_MAX_CHARACTERS])):
        if is_unspaced(word):
            characters += word
        else:
            words.append(word)
    is_spaced = len(characters) <= _UNSPACED_SHARE * sum(map(len, words))
    scores: defaultdict[str, float] = defaultdict(float)
    for languages, weight in (
        chain.from_iterable(map(_signs_of, words)) if is_spaced else _signs_of_letters(characters)
    ):
        for language in languages:
            scores[language] += weight
    scripts = Counter(map(_script, words if is_spaced else characters))
    del scripts[""]
    return LanguageEvidence(is_spaced, scripts, scores)


def _signs_of(word: str) -> Iterator[_Weighted]:
    signs = _signs()
    found = signs.get(word)
    if not found and word.isalpha():
        endings = (signs.get(_ENDING + word[-n:]) for n in (4, 3, 2) if len(word) > n + 1)
        found = next(filter(None, endings), None)
    if found:
        yield found
    if not word.isascii():
        yield from _signs_of_letters(dict.fromkeys(word))


def _signs_of_letters(letters: Iterable[str]) -> Iterator[_Weighted]:
    signs = _signs()
    return filter(None, (signs.get(_LETTER + letter) for letter in letters))


@lru_cache(maxsize=1 << 12)
def _script(word: str) -> str:
    """Return the first word of the name of a word's first letter, which names its script; "" without a letter."""
    letter = next(filter(str.isalpha, word), "")
    if not letter:
        return ""
    if letter.isascii():
        return "LATIN"
    name = unicodedata.name(letter, "").split(" ")[0]
    return "CJK" if name in _JAPANESE_SCRIPTS else name


@cache
def _signs() -> dict[str, _Weighted]:
    """Return for each word, ending and letter, with `_ENDING` and `_LETTER`, the languages that it speaks for.

    With how much it counts for each: the less, the more they are. It is made at first use (4 ms, 1 MB).
    """
    known: defaultdict[str, list[str]] = defaultdict(list)
    for language, own in {**_STEMMED, **_OTHERS}.items():
        listed = STOP_WORDS.get(language, "") + LATER_STOP_WORDS.get(language, "")
        words = f"{own.words} {listed}".casefold().split()
        endings, letters = map(_ENDING.__add__, own.endings.split()), map(_LETTER.__add__, own.letters)
        for sign in dict.fromkeys((*words, *endings, *letters)):
            known[sign].append(language)
    return {
        sign: (several, (_ENDING_WEIGHT if sign.startswith(_ENDING) else 1) / len(several))
        for sign, several in known.items()
    }
