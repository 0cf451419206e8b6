"""A memory limit: its syntax, its distribution, and its effect."""

from __future__ import annotations

import gc
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from support.indexes.filled import fill
from support.indexes.word_encoder import WordEncoder, table_of

from quarry import engine
from quarry.engine import Engine, KMeans
from quarry.engine.index.memory import memory_bytes, plan_memory
from quarry.formats.container.directory import Directory
from quarry.formats.errors import InvalidSetting
from quarry.formats.snapshot import Snapshot

DIM, N_DOCS, N_EACH = 64, 6000, 4
ROWS = N_DOCS * N_EACH


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (1, 1),
        (500_000_000, 500_000_000),
        ("500MB", 500_000_000),
        ("500 mb", 500_000_000),
        ("0.5 GB", 500_000_000),
        ("512MiB", 512 << 20),
        ("1KiB", 1024),
        ("7B", 7),
        (" 2TB ", 2 * 10**12),
    ],
)
def test_sizes(value, expected):
    assert memory_bytes(value) == expected


@pytest.mark.parametrize("value", ["", "MB", "500", "-1MB", "1.5.2MB", "1 XB", "nanGB", 0, -5, 1.5, True, [1]])
def test_invalid_sizes(value):
    with pytest.raises(InvalidSetting, match="memory"):
        memory_bytes(value)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """Build an index of 24,000 centroids with lists, and a graph with random links of realistic size."""
    path = tmp_path_factory.mktemp("memory") / "index"
    encoder, docs = table_of([np.ones((1, DIM), np.float32)])
    engine.build(docs, path, encoder=encoder, representation=KMeans(4096))
    fill(Directory(path), N_DOCS, N_EACH)
    return path


def needs(path, name):
    """Return the number of bytes that a backend reports."""
    with Engine.open(path, backend=name) as index:
        index.search_vectors(np.ones((1, DIM), np.float32))
        return index.stats()["memory"]["resident_bytes"]["backends"]


def chosen(path, **options):
    with Engine.open(path, **options) as index:
        index.search_vectors(np.ones((1, DIM), np.float32))
        stats = index.stats()
        ((name, group),) = stats["backend"]["chosen"].items()
        assert sum(stats["memory"]["resident_bytes"].values()) <= (stats["memory"]["limit_bytes"] or 1 << 60)
        return name, group["reason"]


def test_auto_takes_what_fits(path):
    graph, lists = needs(path, "hnsw"), needs(path, "cpu_faiss")
    assert graph > 3 * lists > 0
    assert needs(path, "scan") == needs(path, "exact") == 0
    assert chosen(path) == ("hnsw", "a graph was written")
    name, reason = chosen(path, memory=graph)
    assert name == "cpu_faiss"
    assert f"not enough memory for hnsw ({graph} bytes)" in reason
    assert chosen(path, memory=2 * graph)[0] == "hnsw"
    assert chosen(path, memory=lists)[0] == "scan"


@pytest.mark.parametrize("name", ["hnsw", "cpu_faiss"])
def test_a_requested_backend_must_fit(path, name):
    with pytest.raises(InvalidSetting, match=f"backend {name} does not fit .* expected {needs(path, name)} bytes"):
        Engine.open(path, backend=name, memory=needs(path, name))
    assert chosen(path, backend=name, memory=2 * needs(path, name))[0] == name


def test_the_least_memory(path):
    with pytest.raises(InvalidSetting, match="too low for this index; expected at least 89275 bytes"):
        Engine.open(path, memory="30KB")
    assert chosen(path, memory=89_276)[0] == "scan"


def test_a_fourth_is_for_postings(path):
    snapshot = Snapshot(Directory(path))
    quantizer = snapshot.segments[0].quantizer.n_bytes
    assert plan_memory(snapshot, None)[1:] == (4 * N_DOCS, quantizer, 128 << 20, 32 << 20, None)
    left = 2_726_000 - quantizer
    assert plan_memory(snapshot, 4_000_000)[1:] == (24_000, quantizer, 1_000_000, 250_000, left)
    assert plan_memory(snapshot, 1 << 40).posting_bytes == 128 << 20
    snapshot.close()
    with Engine.open(path, memory=2_000_000) as index:
        for number in range(500):
            index.search(f"text w{number}", mode="lexical")
            index.search("text", mode="lexical", filter={"id": str(number)})
        held = index.stats()["memory"]["resident_bytes"]
    assert 0 < held["postings"] <= 500_000
    assert 0 < held["filters"] <= 125_000


def test_an_index_that_outgrows_its_memory(tmp_path):
    """A commit that exceeds the memory limit is made and reported, and the open index still answers."""
    encoder = WordEncoder(dim=16)
    engine.build(["one"], tmp_path, encoder=encoder)
    with Engine.open(tmp_path, writable=True, encoder=encoder, memory="200B") as index:
        index.add([f"text {number}" for number in range(100)])
        with pytest.raises(InvalidSetting, match="too low for this index") as caught:
            index.commit()
        assert caught.value.__notes__ == ["Generation 2 was committed."]
        assert len(index.search("one")) == len(index) == 1
    with Engine.open(tmp_path, encoder=encoder) as index:
        assert len(index) == 101


GROWTH = """
import ctypes, gc, sys
from pathlib import Path
import numpy as np
from quarry.engine import Engine


def own_bytes():
    gc.collect()
    try:  # what the allocator keeps for later is not held for anything
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    except (OSError, AttributeError):
        pass
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


first, path, memory, backend = sys.argv[1:]
with Engine.open(first, backend=backend, threads=1) as index:  # what libraries take for themselves
    index.search_vectors(np.ones((1, {dim}), np.float32))
before = own_bytes()
named = dict(memory=memory) if memory else dict(backend=backend)
with Engine.open(path, threads=1, **named) as index:
    for _ in range(20):
        index.search_vectors(np.ones((1, {dim}), np.float32))
    print(own_bytes() - before, *index.stats()["backend"]["chosen"])
    print(sum(index.stats()["memory"]["resident_bytes"].values()))
"""


def growth(repository, *words):
    """Run a process; return the growth of its memory, the backend's name, and the bytes that `stats` reports."""
    command = [sys.executable, "-c", GROWTH.format(dim=DIM), *map(str, words)]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=True)
    grown, name, reported = done.stdout.split()
    return int(grown), name, int(reported)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system does not report memory use")
def test_a_limit_is_kept(path, repository):
    """An index stays within its limit of private memory; with its graph it would take twice the limit."""
    limit, scratch = needs(path, "hnsw") // 2, 1 << 20
    grown, name, _ = growth(repository, path, path, f"{limit}B", "cpu_faiss")
    assert name == "cpu_faiss"
    assert grown < limit + scratch


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """Build an index of 400,000 centroids."""
    path = tmp_path_factory.mktemp("large") / "index"
    encoder, docs = table_of([np.ones((1, DIM), np.float32)])
    engine.build(docs, path, encoder=encoder, representation=KMeans(4096))
    fill(Directory(path), 1000, 400, n_lists=600)
    return path


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs the allocator of Linux")
@pytest.mark.parametrize("name", ["cpu_faiss", "hnsw", "scan", "exact"])
def test_reported_memory_is_allocated_memory(path, large, repository, name):
    grown, chosen, reported = growth(repository, path, large, "", name)
    assert chosen == name
    assert grown == pytest.approx(reported, rel=0.05, abs=1 << 20)


_WORD_BYTES = (
    600  # of a word in the caches of the analyzer, which have a fixed size and are not a part of the limit
)
_OTHER_BYTES = 64 << 10  # of what a first search keeps


def _words(n):
    return [f"{'abcdefgh'[number % 8]}word{number}" for number in range(n)]


@pytest.fixture(scope="module")
def various(tmp_path_factory):
    """Return the folder of an index with rare and frequent terms, metadata, and vectors of any norm."""
    folder, generator, words = tmp_path_factory.mktemp("various"), np.random.default_rng(0), _words(400)
    docs = (
        {
            "id": str(number),
            "text": " ".join([*words[number % 200 :: 200], *generator.choice(words[:40], 20)]),
            "metadata": {"tag": f"t{number % 300}", "year": number % 50},
            "vectors": vector,
        }
        for number, vector in enumerate(generator.standard_normal((4000, 8)))
    )
    engine.build(
        docs, folder, dim=8, metric="l2", language="basque", progress=False
    )  # no other test caches its words
    return folder


@pytest.mark.parametrize("limit", [None, "1500KB"])
@pytest.mark.parametrize("part", ["rare terms", "frequent terms", "filters", "backends"])
def test_what_is_counted_is_what_is_held(various, part, limit):
    """The growth of memory is what `stats` counts, up to a quarter, and less than it where a limit evicts."""
    words = _words(400)
    name = "postings" if part.endswith("terms") else part

    def use(index):
        if part == "rare terms":
            for low in range(40, 400, 10):
                index.search(" ".join(words[low : low + 10]), mode="lexical", typos=False)
        elif part == "frequent terms":
            for word in words[1:40]:
                index.search(word, mode="lexical", typos=False)
        elif part == "filters":
            for number in range(12):
                tags = [f"t{number}", *(f"{number} no tag {other}" for other in range(20 * number))]
                assert index.count({"tag": {"$in": tags}, "year": {"$gt": -1 - number}}) > 0
        else:
            index.search(vector=np.ones(8))

    with Engine.open(various, memory=limit, threads=1) as index:
        index.search(words[0], mode="lexical", typos=False, filter={"year": {"$lt": 3}})  # imports what it needs
        before = index.stats()["memory"]["resident_bytes"][name]
        gc.collect()
        tracemalloc.start()
        try:
            use(index)
            gc.collect()
            growth = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
        counted = index.stats()["memory"]["resident_bytes"][name] - before
    others = _OTHER_BYTES + (_WORD_BYTES * len(words) if part == "rare terms" else 0)
    assert counted > 0
    assert growth <= 1.25 * counted + others
    assert limit is None or growth <= 1_500_000 + others
