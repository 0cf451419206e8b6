"""How many modules a query and a document go through, and how deep the first work is: counts, not times.

A module counts if a function of it is called, on any thread, in a process in which the same was done before: the
files, the encoder and the words of the query are known. The first work is the first call of a function that reads
text or numbers: of the analyzer, the tokenizer or a backend. Its depth is the number of functions of this package
that wait for it, `Engine.search` included, without the wrapper that counts calls for the exit of the interpreter.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from functools import partial

import pytest

import quarry
from quarry.engine import Engine

_WORK = ("quarry.engine.analysis.analyzer", "quarry.engine.encoding.tokenizer", "quarry.engine.backends.scan")
_TEXT = "red green quick brown fox dog river bank engine search table chair mountain ocean forest"
_WORDS = _TEXT.split()
_DOCUMENTS = [
    {"id": str(number), "title": _WORDS[number % 15], "text": " ".join(_WORDS[number % 7 :: 2]) + ". Some text."}
    for number in range(100)
]


class _Trace:
    """The modules entered in a block, the calls of functions, and the depth of the first work."""

    def __init__(self):
        self.modules, self.calls, self.depth = set(), Counter(), None

    def __enter__(self):
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)
        return self

    def __exit__(self, *_):
        sys.setprofile(None)
        threading.setprofile(None)

    def _profile(self, frame, event, _):
        name = frame.f_globals.get("__name__", "")
        if event != "call" or not name.startswith("quarry."):
            return
        self.modules.add(name)
        self.calls[f"{name}.{frame.f_code.co_qualname}".removeprefix("quarry.engine.")] += 1
        if self.depth is None and name in _WORK:
            self.depth = -1  # without the function itself
            while frame is not None:
                self.depth += _is_counted(frame)
                frame = frame.f_back


def _is_counted(frame):
    name = frame.f_globals.get("__name__", "")
    is_wrapper = name == "quarry.engine.process.exit_gate" or frame.f_code.co_name.startswith("<")  # or a loop
    return name.startswith("quarry.") and not is_wrapper


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    path = tmp_path_factory.mktemp("paths") / "index"
    quarry.build(_DOCUMENTS, path)
    with Engine.open(path) as opened:
        yield opened


@pytest.mark.parametrize(
    ("kind", "n_modules", "depth"),
    [("hybrid", 42, 6), ("dense", 38, 8), ("vector", 29, 8), ("lexical", 25, 8)],
)
def test_the_way_of_a_query(index, kind, n_modules, depth):
    queries = ["quick river engine", "table quick engine river", "river table quick engine"]
    if kind == "vector":
        calls = [partial(index.search, vector=index.encoder.encode_query(query)) for query in queries]
    else:
        calls = [partial(index.search, query, mode=kind) for query in queries]
    for call in calls:
        with _Trace() as trace:
            assert len(call()) == 10
    assert len(trace.modules) <= n_modules, sorted(trace.modules)
    assert trace.depth <= depth


def test_what_a_query_is_about_is_computed_once(index):
    with _Trace() as trace:
        assert index.search("a mountian and the river", filter={"id": {"$gte": "5"}})
    once = [
        "filtering.filter.parse_filter",
        "search.query.parse_words",
        "lexical.bm25.Bm25.find_expansions",
        "lexical.bm25.Bm25.query",
        "scoring.stored_vectors.Int8Query.__init__",
    ]
    assert {name: trace.calls[name] for name in once} == dict.fromkeys(once, 1)


def test_the_way_of_a_document(tmp_path):
    quarry.build(_DOCUMENTS[:1], tmp_path / "first")
    with Engine.open(tmp_path / "first") as opened:
        opened.search(_TEXT)  # the model stays loaded
        with _Trace() as trace:
            quarry.build(_DOCUMENTS[:1], tmp_path / "second")
    assert len(trace.modules) <= 98, sorted(trace.modules)
