import dataclasses
import gzip
import json
import random
from pathlib import Path

import numpy as np
import pytest
import zstandard
from support.training.tiny_run import write_collection, write_pairs

from quarry.formats.errors import CorruptFile, InvalidDocument, InvalidSetting
from quarry.training.data.beir import draw_held_out_titles
from quarry.training.data.example_store import ExampleStore
from quarry.training.data.refusal import FINGERPRINTS_PATH, Refusal, load_fingerprints, save_fingerprints
from quarry.training.data.sources import SourceSettings, open_held_out_store, open_source_store

NOTHING = Refusal.of_nothing()


def pairs_settings(path: Path) -> SourceSettings:
    return SourceSettings(name="pairs", kind="pairs", path=path)


def examples(store: ExampleStore) -> list[tuple[str, list[str], list[str]]]:
    return [
        (
            store.query(each),
            [store.document(number) for number in store.positives(each)],
            [store.document(number) for number in store.negatives(each)],
        )
        for each in range(store.n_examples)
    ]


def write_lines(path: Path, *lines: object) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return path


def test_pairs_and_triples_are_read_in_order(tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "pairs.jsonl",
        {"q": "who", "d": "a text", "t": "A title"},
        {"query": "what", "positive": ["one", "two"], "negative": "three"},
        {"query": "which", "positive": "one", "negative": ["two", "three"]},
    )
    store = open_source_store(pairs_settings(path), tmp_path / "store", NOTHING)
    assert examples(store) == [
        ("who", ["A title\na text"], []),
        ("what", ["one", "two"], ["three"]),
        ("which", ["one"], ["two", "three"]),
    ]
    assert store.n_documents == 4


@pytest.mark.parametrize("ending", [".jsonl.gz", ".jsonl.zst"])
def test_compressed_pairs_are_those_of_the_plain_file(tmp_path: Path, ending: str) -> None:
    plain = write_pairs(tmp_path / "pairs.jsonl")
    packed = tmp_path / f"packed{ending}"
    compress = gzip.compress if ending.endswith("gz") else zstandard.ZstdCompressor().compress
    packed.write_bytes(compress(plain.read_bytes()))
    expected = examples(open_source_store(pairs_settings(plain), tmp_path / "a", NOTHING))
    assert len(expected) == 12
    assert examples(open_source_store(pairs_settings(packed), tmp_path / "b", NOTHING)) == expected


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"q": "a"}', "line 2: not a pair"),
        ('{"d": "a"}', "line 2: not a pair"),
        ('{"q": ["a", "b"], "d": "c"}', "line 2: not a pair"),
        ('{"q": 3, "d": "a"}', "line 2: query is not a text"),
        ('{"q": " ", "d": "a"}', "line 2: the query is blank"),
        ('{"q": "a", "d": "\\n"}', "line 2: the passage is blank"),
        ('{"q": "\\u200b\\ufffd", "d": "a"}', "line 2: the query is blank"),
        ('{"q": "a", "d": ["b", "\\u0301\\u0000"]}', "line 2: the passage is blank"),
        ('{"q": "a", "d": "b", "negative": "b"}', "line 2: the query has no usable relevant passage"),
        ("[1]", "line 2: not a JSON object"),
        ("{", "line 2: not JSON"),
    ],
)
def test_bad_lines_are_named(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "pairs.jsonl"
    path.write_text('{"q": "a", "d": "b"}\n' + line + "\n", "utf-8")
    with pytest.raises(InvalidDocument, match=message):
        open_source_store(pairs_settings(path), tmp_path / "store", NOTHING)
    assert not (tmp_path / "store").exists()


def test_a_file_without_examples_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pairs.jsonl").write_text("\n", "utf-8")
    with pytest.raises(InvalidDocument, match="no example"):
        open_source_store(pairs_settings(tmp_path / "pairs.jsonl"), tmp_path / "store", NOTHING)


def test_collections_give_judged_queries_with_titles_and_groups(tmp_path: Path) -> None:
    settings = SourceSettings(name="squad", kind="beir", path=write_collection(tmp_path / "squad"))
    store = open_source_store(settings, tmp_path / "store", NOTHING)
    assert (store.n_examples, store.n_documents, len(set(store.groups.tolist()))) == (48, 24, 6)
    for query, (document,), negatives in examples(store):
        title, _, text = document.partition("\n")
        assert title.startswith("title ")
        assert query in text
        assert negatives == []


def test_documents_judged_0_are_negatives(tmp_path: Path) -> None:
    folder = write_collection(tmp_path / "squad")
    with (folder / "qrels" / "train.tsv").open("a") as file:
        file.write("q-train-0-0-0\ttrain-5-3\t0\n")
    store = open_source_store(SourceSettings(name="s", kind="beir", path=folder), tmp_path / "store", NOTHING)
    counts = [len(store.negatives(each)) for each in range(store.n_examples)]
    assert counts == [1] + [0] * 47


def test_held_out_articles_are_in_the_other_store_only(tmp_path: Path) -> None:
    folder = write_collection(tmp_path / "squad")
    settings = SourceSettings(name="s", kind="beir", path=folder, held_out=2, exclude_titles=("title a",))
    trained = open_source_store(settings, tmp_path / "trained", NOTHING)
    kept = open_held_out_store(settings, tmp_path / "kept")

    def titles(store: ExampleStore) -> set[str]:
        return {store.document(number).partition("\n")[0] for number in range(store.n_documents)}

    assert titles(kept) == draw_held_out_titles(folder, 2, ("title a",))
    assert len(titles(kept)) == 2
    assert titles(trained) | titles(kept) == {f"title {letter}" for letter in "bcdef"}
    assert not titles(trained) & titles(kept)


def test_queries_on_held_out_articles_are_not_trained_on(tmp_path: Path) -> None:
    folder = write_collection(tmp_path / "squad")
    settings = SourceSettings(name="s", kind="beir", path=folder, held_out=2)
    before = open_source_store(settings, tmp_path / "before", NOTHING)
    held_out = draw_held_out_titles(folder, 2)
    documents = [json.loads(line) for line in (folder / "corpus.jsonl").read_text("utf-8").splitlines()]
    kept = next(each["_id"] for each in documents if each["title"] in held_out)
    trained = {each["_id"] for each in documents if each["title"] not in held_out}
    judgments = folder / "qrels" / "train.tsv"
    rows = [line.split("\t") for line in judgments.read_text("utf-8").splitlines()[1:]]
    query = next(query for query, document, _ in rows if document in trained)
    with judgments.open("a") as file:
        file.write(f"{query}\t{kept}\t1\n")
    after = open_source_store(settings, tmp_path / "after", NOTHING)
    assert after.n_examples == before.n_examples - 1
    texts = {after.query(number) for number in range(after.n_examples)}
    with (folder / "queries.jsonl").open("a") as file:
        file.write(json.dumps({"_id": "again", "text": min(texts)}) + "\n")
    with judgments.open("a") as file:
        file.write(f"again\t{kept}\t1\n")
    by_text = open_source_store(settings, tmp_path / "by-text", NOTHING)
    assert {by_text.query(number) for number in range(by_text.n_examples)} == texts - {min(texts)}


def test_held_out_articles_do_not_depend_on_the_order_of_the_file(tmp_path: Path) -> None:
    folder = write_collection(tmp_path / "squad")
    before = draw_held_out_titles(folder, 3)
    lines = (folder / "corpus.jsonl").read_text("utf-8").splitlines()
    random.Random(1).shuffle(lines)
    (folder / "corpus.jsonl").write_text("\n".join(lines), "utf-8")
    assert draw_held_out_titles(folder, 3) == before


def test_titles_are_queries_for_their_texts(tmp_path: Path) -> None:
    folder = write_collection(tmp_path / "squad")
    settings = SourceSettings(name="s", kind="titles", path=folder, id_prefix="train-1", limit=3)
    store = open_source_store(settings, tmp_path / "store", NOTHING)
    ((query, documents, negatives),) = examples(store)
    assert query == "title b"
    assert len(documents) == 3
    assert not negatives
    assert all("title" not in document for document in documents)


def test_all_documents_of_a_title_are_relevant_to_it(tmp_path: Path) -> None:
    folder = write_collection(tmp_path / "squad")
    expected: dict[str, list[str]] = {}
    for line in (folder / "corpus.jsonl").read_text("utf-8").splitlines():
        entry = json.loads(line)
        expected.setdefault(entry["title"], []).append(entry["text"])
    store = open_source_store(SourceSettings(name="s", kind="titles", path=folder), tmp_path / "store", NOTHING)
    found = {query: list(documents) for query, documents, _ in examples(store)}
    assert found == expected
    assert max(map(len, found.values())) > 1


def test_titles_of_pairs_are_queries_for_their_positives(tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "pairs.jsonl",
        {"q": "who", "d": "a text", "t": "A title"},
        {"q": "what", "d": "no article"},
        {"query": "which", "positive": ["one", "two"], "negative": "a lure", "title": "Another"},
        {"query": "where", "positive": "left out", "title": "Egypt"},
        {"query": "when", "positive": "second text", "title": "A title"},
    )
    settings = SourceSettings(name="s", kind="pair-titles", path=path, exclude_titles=("Egypt",))
    store = open_source_store(settings, tmp_path / "store", NOTHING)
    assert examples(store) == [("A title", ["a text", "second text"], []), ("Another", ["one", "two"], [])]
    assert store.n_documents == 4


@pytest.mark.parametrize(
    ("excluded", "titles", "error", "message"),
    [
        (
            ("egypt",),
            ["Egypt", "Peru"],
            InvalidSetting,
            "exclude_titles has a title that no pair has.*found 'egypt'",
        ),
        (("Peru", "Rome "), ["Peru", "Rome"], InvalidSetting, "no pair has.*found 'Rome '"),
        ((), ["", " "], InvalidDocument, "no pair has a title"),
        (("Peru",), ["Peru", ""], InvalidDocument, "no pair has a title.*not in exclude_titles"),
        ((), [["Egypt", "Peru"]], InvalidDocument, "line 1: several titles.*found 2"),
        ((), ["Peru", 5], InvalidDocument, "line 2: title is not a text.*found 5"),
    ],
)
def test_wrong_titles_of_pairs(tmp_path: Path, excluded, titles, error, message) -> None:
    lines = [{"q": f"q {n}", "d": f"text {n}", "t": title} for n, title in enumerate(titles)]
    path = write_lines(tmp_path / "pairs.jsonl", *lines)
    settings = SourceSettings(name="s", kind="pair-titles", path=path, exclude_titles=excluded)
    with pytest.raises(error, match=message) as found:
        open_source_store(settings, tmp_path / "store", NOTHING)
    assert str(path) in str(found.value)


def test_blanks_around_titles_of_pairs_do_not_matter(tmp_path: Path) -> None:
    lines = [{"q": "q", "d": f"text {n}", "t": title} for n, title in enumerate(["Peru", " Peru\t", "Egypt "])]
    path = write_lines(tmp_path / "pairs.jsonl", *lines)
    settings = SourceSettings(name="s", kind="pair-titles", path=path, exclude_titles=("Egypt",))
    store = open_source_store(settings, tmp_path / "store", NOTHING)
    assert examples(store) == [("Peru", ["text 0", "text 1"], [])]


def test_titles_of_pairs_that_are_evaluation_texts_are_left_out(tmp_path: Path) -> None:
    lines = [{"q": f"q {n}", "d": f"text {n}", "t": f"Title {n}"} for n in range(3)]
    known = {"q": "who", "d": "its text", "t": "A title that is known"}
    path = write_lines(tmp_path / "pairs.jsonl", known, *lines)
    settings = SourceSettings(name="s", kind="pair-titles", path=path)
    store = open_source_store(settings, tmp_path / "store", refusal_of(tmp_path, "a title that is known"))
    assert [query for query, _, _ in examples(store)] == ["Title 0", "Title 1", "Title 2"]


def test_a_store_is_opened_again_and_changed_data_is_noticed(tmp_path: Path) -> None:
    path = write_pairs(tmp_path / "pairs.jsonl")
    first = examples(open_source_store(pairs_settings(path), tmp_path / "store", NOTHING))
    stamp = (tmp_path / "store" / "documents.txt").stat().st_mtime_ns
    assert examples(open_source_store(pairs_settings(path), tmp_path / "store", NOTHING)) == first
    assert (tmp_path / "store" / "documents.txt").stat().st_mtime_ns == stamp
    with pytest.raises(InvalidSetting, match="the settings of the source 'pairs' changed"):
        open_source_store(dataclasses.replace(pairs_settings(path), cluster_size=3), tmp_path / "store", NOTHING)
    write_pairs(path, seed=9)
    with pytest.raises(InvalidSetting, match="the files of the source 'pairs' changed"):
        open_source_store(pairs_settings(path), tmp_path / "store", NOTHING)


def test_a_store_does_not_depend_on_how_batches_are_drawn(tmp_path: Path) -> None:
    settings = pairs_settings(write_pairs(tmp_path / "pairs.jsonl"))
    first = examples(open_source_store(settings, tmp_path / "store", NOTHING))
    other = dataclasses.replace(settings, batch_size=4, by_document=True)
    assert examples(open_source_store(other, tmp_path / "store", NOTHING)) == first


def test_data_may_be_moved(tmp_path: Path) -> None:
    path = write_pairs(tmp_path / "pairs.jsonl")
    first = examples(open_source_store(pairs_settings(path), tmp_path / "store", NOTHING))
    (tmp_path / "elsewhere").mkdir()
    path = path.rename(tmp_path / "elsewhere" / "pairs.jsonl")
    assert examples(open_source_store(pairs_settings(path), tmp_path / "store", NOTHING)) == first


def test_a_damaged_store_is_noticed(tmp_path: Path) -> None:
    path = write_pairs(tmp_path / "pairs.jsonl")
    open_source_store(pairs_settings(path), tmp_path / "store", NOTHING)
    with (tmp_path / "store" / "queries.txt").open("ab") as file:
        file.write(b"x")
    with pytest.raises(CorruptFile, match=r"queries\.txt has"):
        ExampleStore(tmp_path / "store")


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "other"},
        {"weight": 0.0},
        {"cluster_size": -1},
        {"held_out": -1},
        {"batch_size": -1},
        {"batch_size": 1},
        {"path": Path("nowhere")},
    ],
)
def test_bad_settings_are_refused(tmp_path: Path, change: dict[str, object]) -> None:
    settings: dict[str, object] = {"name": "s", "kind": "pairs", "path": write_pairs(tmp_path / "p.jsonl")}
    with pytest.raises(InvalidSetting):
        open_source_store(SourceSettings(**(settings | change)), tmp_path / "store", NOTHING)  # type: ignore[arg-type]


def refusal_of(tmp_path: Path, *texts: str) -> Refusal:
    content = tmp_path / "fingerprints.bin"
    save_fingerprints(texts, content)
    return Refusal(load_fingerprints(content))


def test_evaluation_texts_are_recognized_by_their_words(tmp_path: Path) -> None:
    refusal = refusal_of(tmp_path, "What is the lift of a flat plate?", "too short")
    assert refusal.is_kept_for_evaluation("what is the  lift of a flat plate")
    assert refusal.is_kept_for_evaluation("A title\nWhat is the lift of a flat plate?")
    assert not refusal.is_kept_for_evaluation("What is the lift of a flat wing?")
    assert not refusal.is_kept_for_evaluation("too short")


def test_a_few_evaluation_texts_are_left_out_and_many_refused(tmp_path: Path) -> None:
    pairs = [{"q": f"question number {each} of all", "d": f"answer number {each} of all"} for each in range(20)]
    path = write_lines(tmp_path / "pairs.jsonl", *pairs)
    few = refusal_of(tmp_path, "question number 3 of all", "answer number 7 of all")
    store = open_source_store(pairs_settings(path), tmp_path / "few", few)
    assert store.about["n_left_out"] == 2
    found = examples(store)
    assert len(found) == 18
    assert not any("number 3" in query or "number 7" in query for query, _, _ in found)
    many = refusal_of(tmp_path, *(f"question number {each} of all" for each in range(4)))
    with pytest.raises(InvalidSetting, match="4 texts belong to collections that are kept for evaluation"):
        open_source_store(pairs_settings(path), tmp_path / "many", many)
    assert not (tmp_path / "many").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "split"), [("cranfield", "test"), ("squad", "dev")])
def test_training_on_evaluation_collections_is_refused(tmp_path: Path, data_folder, name: str, split: str) -> None:
    settings = SourceSettings(name=name, kind="beir", path=data_folder(name), split=split)
    with pytest.raises(InvalidSetting, match="kept for evaluation"):
        open_source_store(settings, tmp_path / "store", Refusal.shipped())


@pytest.mark.slow
def test_the_excluded_articles_of_squad_have_to_be_left_out(tmp_path: Path, data_folder) -> None:
    settings = SourceSettings(name="squad", kind="beir", path=data_folder("squad"))
    with pytest.raises(InvalidSetting, match="Egypt"):
        open_source_store(settings, tmp_path / "store", Refusal.shipped())


@pytest.mark.slow
def test_the_wikipedia_half_of_scale_is_refused(tmp_path: Path, data_folder) -> None:
    settings = SourceSettings(name="scale", kind="titles", path=data_folder("scale"), id_prefix="wiki-", limit=100)
    with pytest.raises(InvalidSetting, match="kept for evaluation"):
        open_source_store(settings, tmp_path / "store", Refusal.shipped())


def test_the_shipped_fingerprints_can_be_read() -> None:
    assert FINGERPRINTS_PATH.stat().st_size % 6 == 0
    # A question of squad's split dev and the beginning of cranfield's second query.
    assert Refusal.shipped().is_kept_for_evaluation("Which NFL team represented the AFC at Super Bowl 50?")
    assert not Refusal.shipped().is_kept_for_evaluation("Which wine goes with a question that nobody asked?")


@pytest.mark.parametrize("content", [b"", b"abc", b"bbbbbbaaaaaa"])
def test_damaged_fingerprints_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "f.bin").write_bytes(content)
    with pytest.raises(CorruptFile, match="not a file of fingerprints"):
        load_fingerprints(tmp_path / "f.bin")


def test_documents_without_an_article_are_groups_of_their_own(tmp_path: Path) -> None:
    store = open_source_store(pairs_settings(write_pairs(tmp_path / "p.jsonl")), tmp_path / "store", NOTHING)
    assert np.array_equal(np.sort(store.groups), np.arange(store.n_documents))
