"""Equal scores are ordered by id, as a plain sort orders ids."""

from __future__ import annotations

import random

import numpy as np
import pytest
from support.indexes.word_encoder import WordEncoder

from quarry import engine
from quarry.engine import Engine
from quarry.engine.scoring.ranking import IdOrder, Ranking
from quarry.formats.container.directory import Directory
from quarry.formats.snapshot import Snapshot

ENCODER = WordEncoder(dim=4)


def odd_ids(generator, n):
    """Return ids of all lengths with common prefixes, of which some are prefixes of others or end in zeros."""
    found = set()
    while len(found) < n:
        base = generator.choice(["", "https://example.org/a/long/way/", "é", "document-"])
        found.add(base + "".join(generator.choices(["a", "b", "\0", "é", "😀", "0"], k=generator.randint(1, 12))))
    return list(found)


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    """Open a snapshot of two segments; return it with (segment, ordinal, id) of each document."""
    generator, path = random.Random(2), tmp_path_factory.mktemp("ids") / "idx"
    ids = odd_ids(generator, 1500)
    engine.build([{"id": each, "text": "word"} for each in ids[:900]], path, encoder=ENCODER)
    with Engine.open(path, encoder=ENCODER, writable=True) as index:
        index.add([{"id": each, "text": "word"} for each in ids[900:]])
        index.commit()
    snapshot = Snapshot(Directory(path))
    documents = [
        (number, doc, segment.reader.ids[doc])
        for number, segment in enumerate(snapshot.segments)
        for doc in range(segment.record.n_docs)
    ]
    assert len(snapshot.segments) == 2
    yield snapshot, documents
    snapshot.close()


@pytest.mark.parametrize("n", [1, 2, 50, 700, 1499, 1500, 9999])
@pytest.mark.parametrize("n_scores", [1, 2, 40])
def test_equal_scores_are_in_the_order_of_ids(opened, n, n_scores):
    snapshot, documents = opened
    scores = np.random.default_rng(n).integers(0, n_scores, len(documents)).astype(np.float32)
    segments, docs = (np.array([each[part] for each in documents]) for part in (0, 1))
    order = IdOrder(snapshot.segments)
    ranking = Ranking(segments, docs, scores, dense=scores)
    wanted = [
        each[:2]
        for _, each in sorted(zip(-scores, documents, strict=True), key=lambda pair: (pair[0], pair[1][2]))
    ]
    best = order.best(ranking, n)
    assert list(zip(best.segments.tolist(), best.docs.tolist(), strict=True)) == wanted[:n]
    cut = order.cut(ranking, n)
    assert set(zip(cut.segments.tolist(), cut.docs.tolist(), strict=True)) == set(wanted[:n])
    assert len(cut.docs) == min(n, len(documents))
    assert (cut.dense == cut.scores).all()
