"""The command ``quarry``: its output and exit status."""

from __future__ import annotations

import errno
import io
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from importlib import import_module, metadata
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from support.indexes.word_encoder import WordEncoder

from quarry import engine
from quarry.engine.bundled.stdlib_docstrings import stdlib_documents
from quarry.engine.cli.commands import main
from quarry.engine.cli.demo import run_demo
from quarry.engine.cli.output import marks_words, printable, reported
from quarry.engine.search.hits.hits import snippet


class Output:
    """The exit status and output of a command."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self) -> list[dict]:
        return [json.loads(line) for line in self.out.splitlines()]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def quarry(capsys):
    """Return a function that runs a command line and returns its `Output`."""

    def run(*words: object) -> Output:
        code = main([str(word) for word in words])
        return Output(code, *capsys.readouterr())

    return run


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "docs.jsonl"
    texts = {"bread": "Flour and water make bread.", "sea": "A ship sails on the sea.", "rain": "Rain falls."}
    lines = [
        json.dumps({"id": name, "text": text, "metadata": {"letters": len(name)}}) for name, text in texts.items()
    ]
    path.write_text("\n".join(lines))
    return path


@pytest.fixture
def index(quarry, source: Path, tmp_path: Path) -> Path:
    path = tmp_path / "index"
    assert quarry("build", source, path).code == 0
    return path


# Commands


def test_build_reports_what_it_built(quarry, source: Path, tmp_path: Path) -> None:
    output = quarry("build", source, tmp_path / "index", "--json", "--representation", "mean", "--threads", "1")
    assert (output.code, output.err) == (0, "")
    (report,) = output.json
    assert (report["n_documents"], report["n_centroids"]) == (3, 3)
    assert re.search(r"^n_documents +3$", quarry("build", source, tmp_path / "other").out, re.MULTILINE)


def test_build_takes_how_centroids_are_stored(quarry, source: Path, tmp_path: Path) -> None:
    assert quarry("build", source, tmp_path / "index", "--centroids", "none", "--code-bytes", "24").code == 0
    (info,) = quarry("info", tmp_path / "index", "--json").json
    assert (info["stored"], info["code_bytes"]) == ("none", 24)


def test_build_replaces_an_index_only_on_demand(quarry, source: Path, index: Path) -> None:
    refused = quarry("build", source, index)
    assert (refused.code, "--overwrite" in refused.err) == (1, True)
    assert quarry("build", source, index, "--overwrite").code == 0


def test_build_skips_invalid_documents_only_on_demand(quarry, source: Path, tmp_path: Path) -> None:
    source.write_text(source.read_text() + "\nbad line")
    output = quarry("build", source, tmp_path / "index")
    assert (output.code, output.out) == (1, "")
    assert "line 4" in output.err
    assert ". The build was not completed" in output.err
    printed = quarry("build", source, tmp_path / "other", "--skip-invalid").out
    assert re.search(r"^skipped +\S+docs.jsonl: line 4 is not JSON", printed, re.MULTILINE)
    (report,) = quarry("build", source, tmp_path / "index", "--skip-invalid", "--json").json
    assert (report["n_documents"], report["n_skipped"]) == (3, 1)


def test_search_prints_hits_for_people(quarry, index: Path) -> None:
    lines = quarry("search", index, "ocean voyage", "-k", "2").out.splitlines()
    assert lines[0] == "ocean voyage"
    assert re.fullmatch(r" +\d\.\d{2}  sea +A ship sails on the sea\.", lines[1])
    assert len([line for line in lines if line]) == 3


def test_search_says_that_there_is_no_good_answer(quarry, index: Path) -> None:
    poor = quarry("search", index, "printer driver", "-k", "1")
    assert (poor.code, poor.out.splitlines()[-2].strip()) == (0, "no good answer: no hit has a relevance of .5")
    nothing = quarry("search", index, "printer driver", "--min-relevance", "0.5")
    assert (nothing.code, nothing.out.split()) == (1, ["printer", "driver", "no", "hits"])
    assert quarry("search", index, "printer driver", "flour for bread", "--min-relevance", "0.5").code == 0


def test_search_explains_on_demand(quarry, index: Path) -> None:
    assert "100%  A ship sails" in quarry("search", index, "ocean voyage", "--explain").out


def test_search_prints_the_best_passage_and_marks_words_on_a_terminal(quarry, tmp_path, monkeypatch) -> None:
    source = tmp_path / "docs.jsonl"
    name = "handbook/" + "x" * 60 + "/chapter-12.md"
    text = " ".join(f"Nothing of interest is said in sentence {number}." for number in range(40))
    source.write_text(json.dumps({"id": name, "text": f"{text} The ferry sails at noon. {text}"}))
    quarry("build", source, tmp_path / "index")
    plain = quarry("search", tmp_path / "index", "when does the ferry sail").out
    assert "The ferry sails at noon" in plain
    assert re.search(r"  handbook/x+\.\.\.x+/chapter-12\.md  ", plain)
    assert "\x1b" not in plain
    passages = quarry("search", tmp_path / "index", "when does the ferry sail", "--unit", "passage").out
    assert re.search(r"The ferry sails at noon.*\n +passage 1\n", passages)
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    quarry("search", tmp_path / "index", "when does the ferry sail")
    marked = terminal.getvalue()
    assert "The \x1b[1mferry\x1b[0m \x1b[1msails\x1b[0m at noon" in marked
    assert re.sub(r"\x1b\[\dm", "", marked) == plain


def test_scripts_from_right_to_left_stay_in_their_columns_on_a_terminal(quarry, tmp_path, monkeypatch) -> None:
    source = tmp_path / "docs.jsonl"
    documents = {"دليل/قمر": "يرفع القمر البحر!", "סֵפֶר": "סביב (ירח) 2021", "月.txt": "月 تمر moon", "a": "tea"}
    source.write_text("\n".join(json.dumps({"id": name, "text": text}) for name, text in documents.items()))
    quarry("build", source, tmp_path / "index", "--language", "none")
    command = ["search", tmp_path / "index", "القمر", "ירח", "moon", "tea", "-k", "1", "--mode", "lexical"]
    plain = quarry(*command).out
    assert not set("\u2068\u2069") & set(plain + quarry(*command, "--json").out)
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    quarry(*command)
    shown = terminal.getvalue()
    assert re.sub("\x1b\\[\\dm|[\u2068\u2069]", "", shown) == plain
    lines = [
        line.partition("  ")[2] for line in shown.replace("\x1b[1m", "<").replace("\x1b[0m", ">").splitlines()
    ]
    assert [line[8:] for line in lines if line] == [
        f"\u2068دليل/قمر\u2069{' ' * 28}  \u2068يرفع <القمر> البحر!\u2069",
        f"\u2068סֵפֶר\u2069{' ' * 33}  \u2068סביב (<ירח>) 2021\u2069",
        f"月.txt{' ' * 30}  \u2068月 تمر <moon>\u2069",
        f"a{' ' * 35}  <tea>",
    ]


def test_search_leaves_out_what_is_not_relevant(quarry, index: Path) -> None:
    answers = quarry("search", index, "flour for bread", "printer driver", "--min-relevance", "0.5", "--json").json
    assert [[hit["id"] for hit in answer["hits"]] for answer in answers] == [["bread"], []]
    assert "min_relevance is out of range" in quarry("search", index, "bread", "--min-relevance", "7").err


def test_words_are_marked_on_terminals_alone(monkeypatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert marks_words(Terminal())
    assert not marks_words(io.StringIO())
    assert not marks_words(None)
    for variable, value in (("TERM", "dumb"), ("NO_COLOR", "1")):
        with monkeypatch.context() as patch:
            patch.setenv(variable, value)
            assert not marks_words(Terminal())


def test_search_prints_one_object_a_query_for_programs(quarry, index: Path) -> None:
    output = quarry("search", index, "ocean voyage", "a loaf", "--json", "-k", "1", "--explain")
    first, second = output.json
    assert (first["query"], second["query"]) == ("ocean voyage", "a loaf")
    assert first["exactness"] == second["exactness"] == "exact"
    assert [hit["id"] for hit in first["hits"] + second["hits"]] == ["sea", "bread"]
    assert set(first["hits"][0]) == {
        *("id", "score", "text", "title", "metadata", "place", "matches", "terms", "dense_score", "lexical_score"),
        *("passages", "words", "relevance", "mistyped", "passage", "extent", "before", "after", "group"),
    }
    assert first["hits"][0]["matches"][0]["text"] == "A ship sails on the sea."


def test_search_keeps_to_a_filter(quarry, index: Path) -> None:
    (answer,) = quarry("search", index, "ship", "--filter", '{"letters": {"$gte": 4}}', "--json").json
    assert {hit["id"] for hit in answer["hits"]} == {"bread", "rain"}
    for given, message in (
        ("{letters", "--filter is not JSON"),
        ("[1]", "--filter is not a JSON object"),
        ("null", "--filter is not a JSON object"),
        ('{"letters": {"$more": 4}}', "unknown operator"),
        ('{"letters": NaN}', "field 'letters'; expected a str, int"),
        ("[" * 100_000 + "]" * 100_000, "--filter is nested too deep"),
        ('{"letters": {"$in": ' + "[" * 100_000 + "]" * 100_000 + "}}", "--filter is nested too deep"),
        ('{"$not": ' * 100_000 + "{}" + "}" * 100_000, "--filter is nested too deep"),
        ('{"$not": ' * 300 + "{}" + "}" * 300, "a filter is nested too deep"),
        ("[" * 300 + "]" * 300, "--filter is not a JSON object"),
    ):
        output = quarry("search", index, "ship", "--filter", given)
        assert (output.code, output.out) == (1, "")
        assert message in output.err
        assert output.err.count("\n") == 1
        assert len(output.err) < 300


def test_search_sorts_boosts_and_groups(quarry, index: Path) -> None:
    def ids(*words: str) -> list[str]:
        return [hit["id"] for each in quarry("search", index, *words, "--json").json for hit in each["hits"]]

    assert ids("ship", "--sort=-letters", "--sort", "id") == ["bread", "rain", "sea"]
    assert ids("--sort", "letters", "-k", "2") == ["sea", "rain"]
    assert ids("ship", "--boost", '{"letters": {"linear": {"weight": 9}}}') == ["bread", "rain", "sea"]
    printed = quarry("search", index, "ship", "--group-by", "letters", "--total").out.splitlines()
    assert printed[1:3] == ["  3 found", "  3:"]
    for given, message in (
        (("--boost", "[1]"), "--boost is not a JSON object"),
        (("--sort", "leters"), "the nearest are 'letters'"),
        (("--group-size", "2"), "only groups have a size"),
    ):
        output = quarry("search", index, "ship", *given)
        assert (output.code, output.out) == (1, "")
        assert message in output.err


def test_search_finds_documents_like_another(quarry, index: Path) -> None:
    output = quarry("search", index, "--like", "sea", "-k", "5", "--json")
    (found,) = output.json
    assert found["like"] == "sea"
    assert "sea" not in {hit["id"] for hit in found["hits"]}
    assert len(found["hits"]) == 2
    assert quarry("search", index, "--like", "sea").out.startswith("sea\n")
    assert "`like` names a document that is not in the index" in quarry("search", index, "--like", "nothing").err


def test_search_counts_values(quarry, index: Path) -> None:
    command = ("search", index, "ship", "--facets", "letters", "--facets", "id")
    (found,) = quarry(*command, "--json").json
    letters, ids = found["facets"]
    assert (letters["field"], letters["n_documents"]) == ("letters", 1)
    assert ids["values"] == [{"value": "sea", "n_documents": 1}]
    printed = quarry(*command).out
    assert 'id: 1 documents, 0 without a value\n       1  "sea"\n' in printed


def test_search_takes_quotation_marks_as_operators_or_literally(quarry, index: Path) -> None:
    def ids(*words: str) -> list[str]:
        (found,) = quarry("search", index, *words, "--json", "--mode", "lexical", "--facets", "id").json
        counted = {each["value"] for each in found["facets"][0]["values"]}
        assert counted == {hit["id"] for hit in found["hits"]}
        return [hit["id"] for hit in found["hits"]]

    assert ids('"ship sails"') == ids("sai*") == ["sea"]
    assert ids('"sails ship"', "--operators") == ids("sai*", "--no-operators") == []
    assert ids('"sails ship"', "--no-operators") == ids('"sails ship"') == ["sea"]
    assert ids("ship -sails", "--operators") == []


def test_search_reads_queries_from_standard_input(quarry, index: Path, monkeypatch) -> None:
    give_standard_input(monkeypatch, "ocean voyage\r\n\n  \nein Laib über\n".encode())
    output = quarry("search", index, "-", "--json")
    assert [line["query"] for line in output.json] == ["ocean voyage", "ein Laib über"]


def test_a_query_that_is_not_utf8_is_reported(quarry, index: Path, monkeypatch) -> None:
    give_standard_input(monkeypatch, b"good\nb\xff\n")
    output = quarry("search", index, "-")
    assert output.code == 1
    assert "line 2" in output.err


def give_standard_input(monkeypatch, content: bytes) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))


def test_add_and_delete_change_the_index(quarry, index: Path, tmp_path: Path) -> None:
    more = tmp_path / "more.jsonl"
    more.write_text('{"id": "tea", "text": "Tea is a hot drink."}\n{"id": "sea", "text": "Salt water."}')
    (added,) = quarry("add", index, more, "--json").json
    assert (added["n_added"], added["generation"]) == (2, 2)
    more.write_text('{"id": "tea", "text": "Cold tea."}\n{"id": "tea", "text": "Tea is a hot drink."}')
    (again,) = quarry("add", index, more, "--json").json
    assert (again["n_added"], again["generation"]) == (1, 3)
    (deleted,) = quarry("delete", index, "bread", "nobody", "--json").json
    assert (deleted["n_deleted"], deleted["generation"]) == (1, 4)
    (hits,) = quarry("search", index, "food", "--json").json
    assert {hit["id"]: hit["text"] for hit in hits["hits"]} == {
        "tea": "Tea is a hot drink.",
        "sea": "Salt water.",
        "rain": "Rain falls.",
    }


def test_an_index_of_another_encoder_needs_it_for_additions_alone(quarry, source: Path, tmp_path: Path) -> None:
    path = tmp_path / "index"
    engine.build(source, path, encoder=WordEncoder(dim=8))
    output = quarry("add", path, source)
    assert (output.code, output.out) == (1, "")
    assert "open it with encoder=" in output.err
    assert quarry("delete", path, "sea", "--json").json == [{"n_deleted": 1, "generation": 2}]
    assert quarry("merge", path).code == 0


def test_info_and_verify_describe_the_index(quarry, index: Path) -> None:
    (info,) = quarry("info", index, "--json").json
    assert info["n_documents"] == 3
    assert re.search(r"^n_documents +3$", quarry("info", index).out, re.MULTILINE)
    (report,) = quarry("verify", index, "--json").json
    assert report["n_files"] >= 2
    assert report["n_bytes"] == sum(path.stat().st_size for path in index.iterdir() if path.name != "write.lock")


def test_merge_writes_graphs_on_demand(quarry, index: Path) -> None:
    rows = np.random.default_rng(0).standard_normal((40, 500, 4))
    engine.build([{"id": str(n), "vectors": each} for n, each in enumerate(rows)], index, dim=4, overwrite=True)
    assert quarry("merge", index, "--json").json[0]["n_graphs_written"] == 0
    assert not list(index.glob("*.hnsw"))
    (info,) = quarry("merge", index, "--graphs", "--json").json
    assert (info["n_segments"], info["n_graphs_written"]) == (1, 1)
    assert len(list(index.glob("*.hnsw"))) == 1
    assert "backend.chosen.hnsw.n_segments" in quarry("info", index).out


def test_verify_fails_on_a_damaged_file(quarry, index: Path) -> None:
    segment = max(index.iterdir(), key=lambda path: path.stat().st_size)
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 1
    segment.write_bytes(content)
    output = quarry("verify", index)
    assert (output.code, output.out) == (1, "")
    assert segment.name in output.err


def test_verify_names_every_damage_of_files_that_cannot_be_opened(quarry, index: Path) -> None:
    with engine.Engine.open(index, writable=True) as opened:
        opened.add(["one more"])
        opened.commit()
    segments = sorted(index.glob("*.seg"))
    assert len(segments) == 2
    for segment in segments:
        content = bytearray(segment.read_bytes())
        content[-70] ^= 1
        segment.write_bytes(content)
    output = quarry("verify", index)
    assert (output.code, output.out) == (1, "")
    assert all(segment.name in output.err for segment in segments)


# Errors


@pytest.mark.parametrize(
    "words",
    [
        ("search", "nowhere", "text"),
        ("info", "nowhere"),
        ("build", "nowhere.jsonl", "index"),
        ("build", "file.csv", "index"),
        ("search", "index", "text", "--encoder", "nowhere"),
    ],
)
def test_an_error_is_one_line_and_exit_code_1(quarry, index: Path, monkeypatch, words: tuple[str, ...]) -> None:
    monkeypatch.chdir(index.parent)
    output = quarry(*words)
    assert (output.code, output.out) == (1, "")
    assert output.err.startswith("quarry: ")
    assert output.err.count("\n") == 1


def test_an_error_says_what_is_left_behind(quarry, source: Path, tmp_path: Path) -> None:
    source.write_text(source.read_text() + "\nbad line")
    output = quarry("build", source, tmp_path / "new")
    assert output.code == 1
    assert output.err.endswith(f"The build was not completed; there is no index at {tmp_path / 'new'}.\n")


def test_it_runs_without_standard_output(quarry, index: Path, monkeypatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("sys.stdout", None)
        assert main(["info", str(index)]) == 0


def test_the_version_is_printed(capsys) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"quarry {metadata.version('quarry-search')}\n"


@pytest.mark.parametrize("k", [0, -1])
def test_a_wrong_number_is_an_error_of_the_library(quarry, index: Path, k: int) -> None:
    assert quarry("search", index, "text", "-k", k).code == 1


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["nonsense"],
        ["search"],
        ["search", "i"],
        ["search", "i", "q", "--like", "x"],
        ["build", "only"],
        ["info", "a", "b"],
        ["info", ""],
    ],
)
def test_wrong_usage_is_exit_code_2(words: list[str], capsys) -> None:
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "usage: quarry" in err


def test_help_lists_commands_and_exit_codes(capsys) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    out = capsys.readouterr().out
    for name in ("demo", "build", "search", "add", "delete", "info", "verify", "130"):
        assert re.search(rf"^ +{name} ", out, re.MULTILINE)


def test_help_lists_commands_in_groups(capsys) -> None:
    with pytest.raises(SystemExit):
        main(["-h"])
    titles = re.findall(r"^([a-z ]+):$", capsys.readouterr().out, re.MULTILINE)
    assert titles[1:4] == ["make and search", "change", "inspect and copy"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="completion of bash is run by it")
@pytest.mark.parametrize(
    ("words", "completed"),
    [("quarry se", "search serve"), ("quarry info --j", "--json"), ("quarry info fil", ""), ("quarry no --j", "")],
)
def test_bash_completes_commands_and_options(quarry, words: str, completed: str) -> None:
    given = words.split()
    call = f"COMP_WORDS=({words}); COMP_CWORD={len(given) - 1}; _quarry quarry {given[-1]}; echo ${{COMPREPLY[@]}}"
    script = quarry("completion", "bash").out + call
    done = subprocess.run(["bash", "-uc", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == completed.split()


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_scripts_of_other_shells_name_every_command(quarry, shell: str) -> None:
    script = quarry("completion", shell).out
    assert all(name in script for name in ("export-docs", "completion", "serve", "overwrite"))


def test_progress_is_a_line_now_and_then_without_a_terminal(capsys, monkeypatch) -> None:
    times = iter([0.0, 9.0, 10.0, 10.0, 15.0, 21.0, 21.0])
    monkeypatch.setattr("time.monotonic", lambda: next(times))
    report = reported("adding")
    assert report is not None
    for n_done in (1, 2000, 2500):
        report(n_done, None)
    report(3000, 4000)
    assert capsys.readouterr().err.splitlines() == [
        "quarry: adding 2,000 documents",
        "quarry: adding 3,000 of 4,000 documents",
    ]
    monkeypatch.setattr("sys.stderr", Terminal())
    assert reported("adding") is None


def start(repository: Path, *words: object, **streams: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "quarry", *map(str, words)]
    return subprocess.Popen(command, cwd=repository, stderr=subprocess.PIPE, **streams)


def test_an_unknown_field_is_one_line_of_warning(repository: Path, quarry, index: Path) -> None:
    """An unknown field prints one line of warning, shown in a new process, as pytest raises warnings."""
    words, printed = ("search", index, "ship", "sea", "--filter"), "ship\n  no hits\n\nsea\n  no hits\n\n"
    letter, *known = (json.dumps({field: {"$in": ["x", 1000]}}) for field in ("letter", "letters", "id"))
    for only in known:
        output = quarry(*words, only)
        assert (output.code, output.out, output.err) == (1, printed, "")
    process = start(repository, *words, letter, stdout=subprocess.PIPE)
    out, err = process.communicate()
    assert (process.returncode, out) == (1, printed.encode())
    assert err.count(b"\n") == 1
    assert err.startswith(b"quarry: warning: filter: no document has the field 'letter'; ")
    assert b"'letters'" in err


def test_a_reader_that_has_read_enough_is_no_error(repository: Path, index: Path) -> None:
    process = start(repository, "search", index, *["text"] * 2000, stdout=subprocess.PIPE)
    assert process.stdout
    assert process.stderr
    assert process.stdout.readline() == b"text\n"
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait() == 0
    process.stderr.close()


@pytest.mark.skipif(os.name == "nt", reason="needs POSIX locales")
def test_texts_are_utf8_whatever_the_locale(repository: Path, source: Path, index: Path) -> None:
    """In an ASCII locale, texts on the command line are read as UTF-8."""
    environment = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}

    def run(*words: object, stdin: str = "") -> str:
        command = [sys.executable, "-m", "quarry", *map(str, words)]
        done = subprocess.run(
            command, cwd=repository, env=environment, input=stdin.encode(), capture_output=True, check=True
        )
        return done.stdout.decode()

    document = {"id": "käse", "text": "Käse 乳酪", "metadata": {"art": "weiß"}}
    source.write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")
    run("add", index, source)
    printed = run("search", index, "Käse 乳酪", "-", "--filter", '{"art": "weiß"}', stdin="Käse\n")
    assert printed.splitlines()[0] == "Käse 乳酪"
    assert printed.count("käse") == 2


def test_pipes_of_windows(index: Path, monkeypatch) -> None:
    """Output is UTF-8 there too, and a pipe whose other end was closed reports an argument that is not valid."""
    monkeypatch.setattr("quarry.engine.cli.commands.sys", sys_of_windows := SimpleNamespace(**vars(sys)))
    monkeypatch.delenv("PYTHONIOENCODING", raising=False)
    sys_of_windows.platform = "win32"
    sys_of_windows.stdout = io.TextIOWrapper(io.BytesIO(), "cp1252")
    monkeypatch.setattr(sys, "stdout", sys_of_windows.stdout)
    assert main(["search", str(index), "乳酪"]) in (0, 1)
    assert "乳酪" in sys_of_windows.stdout.buffer.getvalue().decode()

    def refuse():
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    with Path(os.devnull).open("w") as replaced:  # the command gives it another file
        sys_of_windows.stdout = SimpleNamespace(flush=refuse, fileno=replaced.fileno, isatty=bool)
        assert main(["search", str(index), "bread"]) == 0
        sys_of_windows.platform = "linux"
        assert main(["search", str(index), "bread"]) == 1


@pytest.fixture
def interrupts():
    """Enable Ctrl-C, which child processes of background jobs ignore otherwise."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interrupts")
@pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")
def test_an_interruption_is_exit_code_130(repository: Path, index: Path) -> None:
    process = start(repository, "search", index, "-", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin
    assert process.stdout
    process.stdin.write(b"text\n")
    process.stdin.flush()
    assert process.stdout.readline() == b"text\n"  # it has answered, and waits for the next query
    process.send_signal(signal.SIGINT)
    assert process.communicate()[1] == b"quarry: interrupted\n"
    assert process.returncode == 130


# Commands of higher layers


SHOUT = '''
"""Print a word in capitals; 100 % sure.

More about it.
"""

def add_arguments(parser):
    parser.add_argument("word")

def run(args):
    print(end=args.word.upper())
    return 0
'''


@pytest.fixture
def plugins(monkeypatch, tmp_path: Path) -> None:
    """Install a distribution with two commands, one of which cannot be loaded."""
    (tmp_path / "shouting.py").write_text(SHOUT)
    (tmp_path / "silent.py").write_text('raise ImportError("no such library")')
    (tmp_path / "shouting-1.dist-info").mkdir()
    (tmp_path / "shouting-1.dist-info" / "METADATA").write_text("Name: shouting\nVersion: 1\n")
    (tmp_path / "shouting-1.dist-info" / "entry_points.txt").write_text(
        "[quarry.commands]\nshout = shouting\nbroken = silent\n"
    )
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("plugins")
def test_commands_of_higher_layers_are_found(quarry) -> None:
    assert quarry("shout", "hello").out == "HELLO"
    assert quarry("shout", "hello").err == ""


@pytest.mark.usefixtures("plugins")
def test_a_command_that_cannot_be_loaded_leaves_the_others_alone(capsys) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    out, err = capsys.readouterr()
    assert "100 % sure." in out
    assert err == "quarry: the command 'broken' cannot be loaded: no such library\n"
    with pytest.raises(SystemExit) as caught:
        main(["broken"])
    assert caught.value.code == 2
    assert "no such library" in capsys.readouterr().err


def test_the_declared_commands_are_commands(repository: Path) -> None:
    declared = tomllib.loads((repository / "pyproject.toml").read_text())["project"]["entry-points"][
        "quarry.commands"
    ]
    assert declared
    for name, place in declared.items():
        module = import_module(place)
        assert module.__doc__, name
        assert callable(module.add_arguments)
        assert callable(module.run)


# The demonstration


def test_the_demonstration_finds_what_it_should_and_builds_its_index_once(quarry, tmp_path: Path, capsys) -> None:
    modules = {
        "argparse",
        "subprocess",
        "random",
        "tempfile",
        "threading",
        "difflib",
        "heapq",
        "textwrap",
        "bisect",
    }
    assert run_demo(tmp_path, True, stdlib_documents(modules)) == 0
    result = json.loads(capsys.readouterr().out)
    assert 100 < result["n_documents"] == result["build"]["n_documents"]
    assert Path(result["path"]).parent == tmp_path
    found = {answer["query"]: [hit["id"] for hit in answer["hits"]] for answer in result["answers"]}
    for question, module in {
        "parse command line arguments": "argparse",
        "run another program and read its output": "subprocess",
        "pick some elements of a list at random": "random",
        "make a temporary folder that goes away": "tempfile",
    }.items():
        assert any(name.split(".")[0] == module for name in found[question]), question

    files = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    output = quarry("demo", tmp_path)
    assert output.code == 0
    assert re.search(r"^ +[01]\.\d{2}  argparse +\S", output.out, re.MULTILINE)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == files


@pytest.mark.parametrize("damage", ["another encoder", "a damaged file"])
def test_a_demonstration_that_cannot_use_what_is_there_builds_anew(tmp_path: Path, capsys, damage: str) -> None:
    folder = tmp_path / f"python-{platform.python_version()}"
    engine.build(["something else"], folder, encoder=WordEncoder() if damage == "another encoder" else None)
    if damage == "a damaged file":
        next(folder.glob("MANIFEST-*")).write_bytes(b"nonsense")
    assert run_demo(tmp_path, True, [engine.Document("one", "all there is")]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["build"]["n_documents"] == 1
    assert {hit["id"] for answer in result["answers"] for hit in answer["hits"]} == {"one"}


# Snippets


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such names of files")
def test_control_characters_of_names_are_escaped(quarry, tmp_path) -> None:
    name = "\x1b]0;title\x07\x1b[2J\x9b\u202e\nbad.docx"
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / name).write_bytes(b"no archive")
    (tmp_path / "files" / "a\x1b[31m.txt").write_text("a text")
    for words in (
        ["build", tmp_path / "files", tmp_path / "index"],
        ["build", tmp_path / "files", tmp_path / "index", "--skip-invalid"],
        ["sync", tmp_path / "files", tmp_path / "synced"],
        ["search", tmp_path / "index", "text \x1b[2J", "--facets", "file.path"],
        ["search", tmp_path / "index", "--like", "a\x1b[31m.txt"],
        ["info", tmp_path / name],
    ):
        output = quarry(*words)
        shown = (output.out + output.err).replace("\n", "")
        assert shown
        assert shown.isprintable()


def test_wrong_words_are_quoted_without_control_characters(capsys) -> None:
    with pytest.raises(SystemExit):
        main(["info", "index", "a\x1b[2J"])
    assert r"a\x1b[2J" in capsys.readouterr().err


def test_printable_characters_of_all_scripts_stay() -> None:
    for text in ("日本\u3000語", "naïve\xa0café", "می\u200cخواهم", "👩\u200d💻", ""):
        assert printable(text) == text
    assert printable("a\nb\t\udc80", kept="\t") == r"a\nb" + "\t" + r"\udc80"


def test_a_snippet_is_one_line_without_control_characters() -> None:
    assert snippet("  one\n\ttwo  ") == "one two"
    assert snippet("\x1b[31mred\x07\u202e") == "[31mred"
    assert snippet("word " * 1000, 20) == "word word word wo..."
    assert snippet("a" * 20, 20) == "a" * 20


def test_the_command_is_installed_under_its_name(repository: Path) -> None:
    scripts = tomllib.loads((repository / "pyproject.toml").read_text())["project"]["scripts"]
    entry = metadata.EntryPoint("quarry", scripts["quarry"], "console_scripts")
    assert entry.load() is main
