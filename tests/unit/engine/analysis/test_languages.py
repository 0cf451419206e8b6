"""The language of a text is guessed."""

from __future__ import annotations

import pytest

from quarry.engine.analysis.languages import find_language, weigh_languages

TEXTS = {
    "english": "The houses of the old town were built in the last century, and they are still there.",
    "german": "Die Häuser der alten Stadt wurden im letzten Jahrhundert gebaut und stehen noch heute.",
    "french": "Les maisons de la vieille ville ont été construites au siècle dernier et sont encore là.",
    "spanish": "Las casas del casco antiguo fueron construidas en el siglo pasado y todavía están allí.",
    "italian": "Le case della città vecchia sono state costruite nel secolo scorso e ci sono ancora.",
    "portuguese": "As casas da cidade velha foram construídas no século passado e ainda estão lá.",
    "dutch": "De huizen van de oude stad werden in de vorige eeuw gebouwd en staan er nog steeds.",
    "romanian": "Casele din orașul vechi au fost construite în secolul trecut și sunt încă acolo.",
    "turkish": "Eski şehrin evleri geçen yüzyılda inşa edildi ve bugün de hâlâ orada duruyor.",
    "swedish": "Husen i den gamla staden byggdes under förra seklet och står fortfarande kvar där.",
    "finnish": "Vanhan kaupungin talot rakennettiin viime vuosisadalla, ja ne ovat siellä yhä.",
    "hungarian": "Az óváros házait a múlt században építették, és még mindig ott állnak.",
    "russian": "Дома старого города были построены в прошлом веке и стоят там до сих пор.",
    "greek": "Τα σπίτια της παλιάς πόλης χτίστηκαν τον περασμένο αιώνα και είναι ακόμα εκεί.",
    "arabic": "بنيت بيوت المدينة القديمة في القرن الماضي وما زالت هناك.",
    "hindi": "पुराने शहर के घर पिछली सदी में बनाए गए थे और आज भी वहाँ हैं।",
}


@pytest.mark.parametrize("language", TEXTS)
def test_a_sentence(language):
    assert find_language(TEXTS[language]) == language
    assert find_language(TEXTS[language].upper()) == language
    assert find_language(TEXTS[language] * 1000) == language


@pytest.mark.parametrize(
    "text",
    [
        "旧城区的房子建于上个世纪，现在还在那里。iPhone",
        "旧市街の家は前世紀に建てられました。",
        "บ้านในเมืองเก่าสร้างขึ้นในศตวรรษที่แล้ว",
        "Những ngôi nhà trong khu phố cổ được xây dựng vào thế kỷ trước và vẫn còn ở đó.",
        "Domy na starym mieście zostały zbudowane w ubiegłym wieku i nadal tam są.",
        "בתי העיר העתיקה נבנו במאה הקודמת",
    ],
)
def test_others_are_not_stemmed(text):
    assert find_language(text) == "none"


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("", "english"),
        ("12 345", "english"),
        ("_-+", "english"),
        ("Red shoes", "english"),
        ("Москва", "russian"),
        ("\ud800 \U0001f600", "english"),
        ("\u0301" * 3000, "english"),
    ],
)
def test_a_text_without_a_sign(text, language):
    assert find_language(text) == language


@pytest.mark.parametrize(
    ("text", "expected", "language"),
    [
        ("war in Vietnam", {"english": 9.0, "german": 1.0}, "english"),
        ("war in Vietnam", {"english": 1.0, "german": 1.0}, "german"),
        ("war in Vietnam", {"english": 0.0, "none": 0.0}, "english"),
        ("Wo steht das Haus, und wie alt ist es?", {"english": 3.0, "german": 1.0}, "german"),
        ("Gdzie jest dom, i jak to się nazywa?", {"english": 1.0, "none": 1.0}, "none"),
        ("旧城区", {"english": 1.0}, "none"),
        ("war", {}, "none"),
    ],
)
def test_the_languages_of_an_index_are_expected(text, expected, language):
    assert find_language(text, expected) == language


OTHERS = {
    "japanese": "旧市街の家は前世紀に建てられました。",
    "chinese": "旧城区的房子建于上个世纪，现在还在那里。",
    "thai": "บ้านในเมืองเก่าสร้างขึ้นในศตวรรษที่แล้ว",
    "korean": "구시가지의 집들은 지난 세기에 지어졌다.",
    "vietnamese": "Những ngôi nhà trong khu phố cổ được xây dựng vào thế kỷ trước và vẫn còn ở đó.",
    "polish": "Domy na starym mieście zostały zbudowane w ubiegłym wieku i nadal tam są.",
    "ukrainian": "Будинки старого міста були збудовані в минулому столітті і стоять там досі.",
    "hebrew": "בתי העיר העתיקה נבנו במאה הקודמת",
}
QUESTIONS = {
    "english": "When were the houses built?",
    "german": "Wann wurden die Häuser gebaut?",
    "spanish": "¿Cuándo se construyeron las casas?",
    "russian": "Когда были построены дома?",
    "chinese": "房子是什么时候建的？",
    "japanese": "家はいつ建てられましたか？",
    "thai": "บ้านสร้างเมื่อไหร่",
    "vietnamese": "Những ngôi nhà được xây dựng khi nào?",
    "polish": "Kiedy zostały zbudowane te domy?",
}


@pytest.mark.parametrize("language", QUESTIONS)
def test_a_question_is_foreign_to_texts_of_other_languages_alone(language):
    question = weigh_languages(QUESTIONS[language])
    for name, text in (TEXTS | OTHERS).items():
        assert question.is_foreign_to(weigh_languages(text)) == (name != language), name


@pytest.mark.parametrize(
    ("query", "language"),
    [
        ("Nikola Tesla", "german"),  # a name
        ("2024", "chinese"),
        ("", "english"),
        ("旧市街", "chinese"),  # ideographs
        ("旧市街", "japanese"),
        ("Was?", "english"),
        ("weather", "russian"),  # one word
        ("кошка", "german"),
        ("1984 дом", "russian"),
        ("Что такое Windows Server Update?", "russian"),
    ],
)
def test_in_doubt_no_language_is_foreign(query, language):
    text = (TEXTS | OTHERS)[language]
    assert not weigh_languages(query).is_foreign_to(weigh_languages(text))
    assert not weigh_languages(text).is_foreign_to(weigh_languages(query))
