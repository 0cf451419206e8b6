"""The MCP server, tested with the client of the official library over standard input and output."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading

import pytest

pytest.importorskip("mcp", reason="needs the library of the Model Context Protocol")

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from quarry import engine
from quarry.engine import Engine, IndexNotFound, InvalidSetting
from quarry.engine.cli.commands import main
from quarry.integrations.mcp_server import make_server
from quarry.integrations.open_index import OpenIndex

DOCUMENTS = [
    {"id": "bread", "title": "Bread", "text": "Bread keeps fresh in a linen bag.", "metadata": {"year": 2020}},
    {"id": "ship", "text": "A ship crosses the ocean in two weeks.", "metadata": {"year": 2021}},
]


def talk(arguments, *calls):
    """Run ``quarry mcp``, call tools, and return the names of the tools and (content, is_error) of each answer.

    Functions among the calls are called in between.
    """
    return asyncio.run(_talk(arguments, *calls))


@pytest.fixture
def path(tmp_path):
    engine.build(DOCUMENTS, tmp_path / "notes")
    return tmp_path / "notes"


async def _talk(arguments, *calls):
    words = ["-m", "quarry", "mcp", *map(str, arguments)]
    parameters = StdioServerParameters(command=sys.executable, args=words, env=dict(os.environ))
    async with stdio_client(parameters) as streams, ClientSession(*streams) as session:
        await session.initialize()
        tools = [tool.name for tool in (await session.list_tools()).tools]
        answers = []
        for call in calls:
            if callable(call):
                call()
                continue
            name, values = call
            found = await session.call_tool(name, values)
            answers.append((found.structured_content or [each.text for each in found.content], found.is_error))
        return tools, answers


def test_search_and_read(path):
    def commit():
        with Engine.open(path, writable=True) as index:
            index.add([{"id": "snow", "text": "Snow falls in winter."}])
            index.commit()

    tools, answers = talk(
        [path],
        ("list_indexes", {}),
        ("search", {"query": "how does bread keep fresh?", "k": 1}),
        ("search", {"query": "bread", "filter": {"year": 2021}, "index": "notes"}),
        ("get_document", {"id": "ship"}),
        commit,
        ("search", {"query": "when does snow fall?", "k": 1, "min_relevance": 0.01}),
    )
    assert sorted(tools) == ["count_values", "get_document", "list_indexes", "search"]
    assert not any(is_error for _, is_error in answers)
    listed, found, filtered, document, fresh = (content.get("result", content) for content, _ in answers)
    assert listed == [{"name": "notes", "documents": 2}]
    assert found[0]["id"] == found[0]["source"] == "bread"
    assert (found[0]["text"], found[0]["title"]) == (DOCUMENTS[0]["text"], "Bread")
    assert 0 < found[0]["relevance"] <= 1
    assert [hit["id"] for hit in filtered] == ["ship"]
    assert document["text"] == DOCUMENTS[1]["text"]
    assert [hit["id"] for hit in fresh] == ["snow"]


def test_results_are_sorted_boosted_grouped_and_counted(tmp_path):
    documents = [
        {
            "id": f"note {n}",
            "text": f"The ship number {n} left the port.\n\n" + "It was foggy at sea. " * 90,
            "metadata": {
                "date": f"2025-0{n + 1}-01",
                "port": "Bari" if n % 2 else "Oslo",
                **({"n": n} if n else {}),
            },
        }
        for n in range(6)
    ]
    engine.build(documents, tmp_path / "notes")
    _, answers = talk(
        [tmp_path / "notes"],
        ("search", {"query": "ships", "sort": "-date", "k": 2}),
        ("search", {"sort": ["port", "-date"], "k": 3, "filter": {"n": {"$exists": True}}, "offset": 1}),
        ("search", {"query": "which ship left", "boost": NEWEST}),
        ("search", {"query": "which ship left", "group_by": "port"}),
        ("search", {"query": "+ship -3 port:Bari", "operators": True, "mode": "lexical", "unit": "document"}),
        ("search", {"like": "note 2", "unit": "document", "k": 1}),
        ("count_values", {"field": "port", "query": "ship", "filter": {"n": {"$exists": True}}}),
        ("search", {}),
        ("search", {"query": "ship", "sort": "dat"}),
        ("count_values", {"field": "port", "query": 3}),
    )
    assert [is_error for _, is_error in answers] == [False] * 7 + [True] * 3
    newest, browsed, recent, grouped, limited, alike, counted = (
        content.get("result", content) for content, _ in answers[:7]
    )
    assert [hit["id"] for hit in newest] == ["note 5", "note 4"]
    assert [hit["id"] for hit in browsed] == ["note 3", "note 1", "note 4"]
    assert all(hit["text"].startswith("The ship number") for hit in newest)
    assert recent[0]["id"] == "note 5"
    assert sorted(hit["metadata"]["port"] for hit in grouped) == ["Bari", "Oslo"]
    assert {hit["id"] for hit in limited} == {"note 1", "note 5"}
    assert (len(alike), alike[0]["id"] != "note 2") == (1, True)
    assert counted["values"] == [{"value": "Bari", "n_documents": 3}, {"value": "Oslo", "n_documents": 2}]
    assert "nothing to search for" in json.dumps(answers[7][0])
    assert "date" in json.dumps(answers[8][0])


NEWEST = {"date": {"recency": {"half_life": "365d", "weight": 9}}}
BOOK = "\n\n".join(
    (
        "Bread keeps fresh in a linen bag. " * 30,
        "The captain of a ship navigates by the stars. " * 30,
        "Rain falls mostly in autumn. " * 40,
    )
)


def test_passages_are_found_and_read_around(tmp_path):
    engine.build([{"id": "book", "title": "All", "text": BOOK, "metadata": {"n": 1}}], tmp_path / "books")
    _, answers = talk(
        [tmp_path / "books"],
        ("search", {"query": "how do captains navigate?", "k": 2}),
        ("search", {"query": "how do captains navigate?", "unit": "document"}),
        ("get_document", {"id": "book", "offset": 1000, "limit": 100}),
        ("get_document", {"id": "book", "offset": len(BOOK) - 100}),
        ("get_document", {"id": "book", "offset": len(BOOK) + 1}),
        ("search", {"query": "captains", "unit": "chapter"}),
    )
    assert [is_error for _, is_error in answers] == [False] * 4 + [True] * 2
    (best, other), (document,), middle, end = (content.get("result", content) for content, _ in answers[:4])
    assert "captain" in best["text"]
    assert BOOK[best["offset"] :].startswith(best["text"])
    assert (best["id"], best["source"], best["metadata"]) == ("book", "book", {"n": 1})
    assert best["passage"] != other["passage"]
    assert document.keys() == {"id", "title", "source", "relevance", "text", "metadata"}
    assert len(document["text"]) < len(best["text"])
    assert (middle["text"], middle["next_offset"]) == (BOOK[1000:1100], 1100)
    assert (middle["characters"], middle["offset"]) == (len(BOOK), 1000)
    assert end["text"] == BOOK[-100:]
    assert "next_offset" not in end
    assert f"has {len(BOOK)} characters" in json.dumps(answers[4][0])
    assert "document" in json.dumps(answers[5][0])


def test_errors_are_messages(path):
    _, answers = talk(
        [path, f"other={path}"],
        ("search", {"query": "bread"}),
        ("search", {"query": "bread", "index": "none"}),
        ("search", {"query": "bread", "index": "notes", "filter": {"year": {"$more": 1}}}),
        ("search", {"query": "bread", "index": "notes", "k": 0}),
        ("search", {"query": "bread " * 2000, "index": "notes"}),
        ("get_document", {"id": "nothing", "index": "other"}),
        ("delete", {"ids": ["bread"], "index": "notes"}),
    )
    assert all(is_error for _, is_error in answers)
    messages = [json.dumps(content) for content, _ in answers]
    for message, part in zip(
        messages,
        (
            "name an index",
            "no index 'none'",
            "unknown operator",
            "greater than or equal",
            "at most 10000",
            "no document 'nothing'",
            "delete",
        ),
        strict=True,
    ):
        assert part in message
    assert len(Engine.open(path)) == 2


def test_write(path, tmp_path):
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "rain.md").write_text("# Rain\n\nRain falls in autumn.\n", encoding="utf-8")
    tools, answers = talk(
        [path, "--writable", "--sync", f"notes={tmp_path / 'files'}"],
        ("add", {"id": "snow", "text": "Snow falls in winter.", "metadata": {"year": 2022}}),
        ("delete", {"ids": ["ship", "nothing"]}),
        ("sync", {}),
        ("search", {"query": "when does rain fall?", "k": 1}),
        lambda: Engine.open(path, writable=True).close(),
        ("add", {"id": "", "text": "an id is missing"}),
    )
    assert {"add", "delete", "sync"} <= set(tools)
    assert [is_error for _, is_error in answers[:4]] == [False] * 4
    assert "1 of 2" in json.dumps(answers[1][0])
    assert answers[2][0]["added"] == 1
    assert answers[3][0]["result"][0]["source"].startswith("rain.md")
    assert answers[4][1]
    assert "InvalidDocument" in json.dumps(answers[4][0])
    with Engine.open(path) as index:
        assert sorted(index.ids()) == ["bread", "rain.md", "snow"]


def test_settings_are_checked(path, tmp_path):
    with pytest.raises(IndexNotFound):
        OpenIndex(tmp_path / "nothing", create=False)
    index = OpenIndex(path)
    with pytest.raises(InvalidSetting, match="not served"):
        make_server({"notes": index}, is_writable=True, synced={"other": tmp_path})
    with pytest.raises(InvalidSetting, match="read-only"):
        make_server({"notes": index}, synced={"notes": tmp_path})
    index.close()


def test_the_lock_is_held_only_while_something_is_written(path):
    """The lock is free between writes, so that another process can write before, during and after them."""
    other = None
    released = threading.Event()

    def commit(name):
        with Engine.open(path, writable=True) as index:
            index.add([{"id": name, "text": f"document {name}"}])
            index.commit()

    def take_the_lock():
        nonlocal other
        other = Engine.open(path, writable=True)
        other.add([{"id": "during", "text": "document during"}])

        def release():
            other.commit()
            other.close()
            released.set()

        threading.Timer(0.3, release).start()

    _, answers = talk(
        [path, "--writable"],
        ("add", {"id": "one", "text": "the first document"}),
        lambda: commit("between"),
        take_the_lock,
        ("add", {"id": "two", "text": "the second document"}),
        lambda: commit("after"),
        ("delete", {"ids": ["between"]}),
        ("list_indexes", {}),
        ("search", {"query": "the second document", "k": 1}),
    )
    assert released.is_set()
    assert not any(is_error for _, is_error in answers)
    assert answers[3][0]["result"][0]["documents"] == 6
    assert answers[4][0]["result"][0]["id"] == "two"
    with Engine.open(path) as index:
        assert sorted(index.ids()) == ["after", "bread", "during", "one", "ship", "two"]


def test_a_document_is_replaced_and_what_follows_no_folder_is_named(path, tmp_path):
    folder = tmp_path / "files"
    folder.mkdir()
    _, answers = talk(
        [path, f"other={path}", "--writable", "--sync", f"other={folder}"],
        ("add", {"id": "bread", "text": "new text", "title": "New", "index": "notes"}),
        ("get_document", {"id": "bread", "index": "notes"}),
        ("add", {"id": "bad", "text": " ", "index": "notes"}),
        ("add", {"id": "bad", "text": "x", "metadata": {"n": 2**70}, "index": "notes"}),
        ("sync", {"index": "notes"}),
        ("delete", {"ids": ["nobody"], "index": "notes"}),
    )
    assert [is_error for _, is_error in answers] == [False, False, True, True, True, False]
    assert (answers[1][0]["text"], answers[1][0]["title"], answers[1][0]["metadata"]) == ("new text", "New", {})
    assert "follows no folder" in json.dumps(answers[4][0])
    assert "0 of 1" in json.dumps(answers[5][0])
    with Engine.open(path) as index:
        assert sorted(index.ids()) == ["bread", "ship"]


def test_the_configuration_of_the_example(repository, tmp_path):
    """The command line of the example works with the folders of this test."""
    settings = json.loads((repository / "examples" / "mcp.json").read_text(encoding="utf-8"))
    (server,) = settings["mcpServers"].values()
    assert (server["command"], server["args"][0]) == ("quarry", "mcp")
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "rain.md").write_text("# Rain\n\nRain falls in autumn.\n", encoding="utf-8")
    engine.build(DOCUMENTS, tmp_path / "notes-index")
    arguments = [argument.replace("/home/ada", str(tmp_path)) for argument in server["args"][1:]]
    tools, answers = talk(arguments, ("sync", {}), ("search", {"query": "when does rain fall?", "k": 1}))
    assert {"search", "count_values", "get_document", "list_indexes", "add", "delete", "sync"} == set(tools)
    assert answers[1][0]["result"][0]["source"].startswith("rain.md")


def test_arguments_that_a_tool_does_not_have_are_refused(path, tmp_path):
    _, answers = talk(
        [path],
        ("search", {"query": "bread", "filters": {"year": 1900}}),
        ("get_document", {"id": "ship", "indx": "notes"}),
        ("list_indexes", {"verbose": True}),
    )
    assert [is_error for _, is_error in answers] == [True] * 3
    messages = ("the nearest: filter); found filters", "the nearest: index); found indx", "found verbose")
    for (content, _), message in zip(answers, messages, strict=True):
        assert message in json.dumps(content)
    index = OpenIndex(path)
    tools = asyncio.run(make_server({"notes": index}, is_writable=True, synced={"notes": tmp_path}).list_tools())
    index.close()
    assert len(tools) == 7
    assert all(tool.input_schema["additionalProperties"] is False for tool in tools)


def test_the_other_indexes_are_listed_when_one_disappears(path, tmp_path):
    engine.build(DOCUMENTS, tmp_path / "gone")
    _, answers = talk(
        [tmp_path / "gone", path], lambda: (tmp_path / "gone").rename(tmp_path / "away"), ("list_indexes", {})
    )
    ((content, is_error),) = answers
    gone, notes = content["result"]
    assert not is_error
    assert notes == {"name": "notes", "documents": 2}
    assert gone["name"] == "gone"
    assert gone["error"].startswith("IndexNotFound")


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["=INDEX"], "without a name"),
        (["INDEX", "--writable", "--sync", "notes"], "needs an index and a folder"),
        (["INDEX", "--writable", "--sync", "=INDEX"], "needs an index and a folder"),
        (["INDEX", "--writable", "--sync", "notes="], "needs an index and a folder"),
        (["INDEX", "--writable", "--sync", "notes=INDEX/nope"], "no such folder"),
        (["INDEX", "--writable", "--sync", "notes=INDEX", "--sync", "notes=INDEX"], "only one folder"),
        (["INDEX", "--writable", "--sync", "other=INDEX"], "not served"),
        (["INDEX", "--sync", "notes=INDEX"], "read-only"),
    ],
)
def test_words_that_are_not_valid_are_errors_at_the_start(path, words, part, capsys):
    assert main(["mcp", *(word.replace("INDEX", str(path)) for word in words)]) != 0
    assert part in capsys.readouterr().err
