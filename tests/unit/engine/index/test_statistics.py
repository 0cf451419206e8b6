from __future__ import annotations

import json

import pytest
from support.indexes.word_encoder import WordEncoder

from quarry import engine
from quarry.engine import Engine, KMeans

ENCODER = WordEncoder()


def texts(n, first=0):
    return [
        {"id": str(number), "text": f"word{number} and word{number + 1} more"}
        for number in range(first, first + n)
    ]


@pytest.fixture
def path(tmp_path):
    engine.build(texts(50), tmp_path / "index", encoder=ENCODER, representation=KMeans(3), code_bytes=8)
    return tmp_path / "index"


def test_statistics_of_an_index(path):
    with Engine.open(path) as index:
        found = index.stats()
    parts = found.pop("bytes")
    size = found.pop("size_bytes")
    memory, backend = found.pop("memory"), found.pop("backend")
    assert found == {
        "generation": 1,
        "n_documents": 50,
        "n_deleted": 0,
        "n_passages": 50,
        "n_centroids": 150,
        "n_segments": 1,
        "dim": 32,
        "metric": "cosine",
        "dense_weight": 0.5,
        "language": "english",
        "representation": {"name": "kmeans", "n_centroids": 3},
        "encoder": "words",
        "stored": "int8",
        "code_bytes": 8,
        "drift": None,
    }
    assert parts["centroids"] == 150 * (32 + 4) + 51 * 8
    assert parts["codes"] == parts["quantizers"] == 0
    assert sum(parts.values()) == size
    assert size == sum(file.stat().st_size for file in path.glob("*.seg"))
    assert json.loads(json.dumps(found | memory | backend)) == found | memory | backend
    assert backend["requested"] == "auto"
    reason = backend["chosen"]["scan"].pop("reason")
    assert "all centroids are read" in reason
    assert backend["chosen"] == {"scan": {"n_segments": 1, "n_centroids": 150}}
    assert memory == {
        "limit_bytes": None,
        "mapped_bytes": size,
        "resident_bytes": {"backends": 0, "postings": 0, "filters": 0, "documents": 4 * 50, "quantizers": 0},
        "device_bytes": 0,
    }


def test_after_changes(path):
    with Engine.open(path, writable=True, encoder=ENCODER) as index:
        index.add(texts(10, 45))
        index.delete(["0", "1"])
        index.commit()
        found = index.stats()
        assert found["n_documents"] == len(index) == 53
        assert found["n_deleted"] == 7
        assert found["n_segments"] == found["generation"] == 2
        assert found["n_centroids"] == 180
        files = [*path.glob("*.seg"), *path.glob("*.del")]
        assert found["size_bytes"] == sum(file.stat().st_size for file in files)


def test_codes(path, tmp_path):
    engine.build(
        texts(600), tmp_path / "codes", encoder=ENCODER, representation=KMeans(3), centroids="none", code_bytes=4
    )
    with Engine.open(tmp_path / "codes") as index:
        found = index.stats()
    assert found["stored"] == "none"
    assert found["bytes"]["codes"] > 1800 * (4 + 4)
    assert found["bytes"]["quantizers"] > 0
    assert found["bytes"]["centroids"] == 601 * 8


def test_an_empty_index(tmp_path):
    engine.build([], tmp_path / "index", encoder=ENCODER)
    with Engine.open(tmp_path / "index") as index:
        found = index.stats()
    assert found["n_documents"] == found["n_segments"] == found["n_centroids"] == found["size_bytes"] == 0


def test_a_generation_whose_files_are_gone(path):
    """A reader whose files were deleted by another process's commit still has its statistics."""
    with Engine.open(path) as reader:
        before = reader.stats()
        with Engine.open(path, writable=True, encoder=ENCODER) as writer:
            writer.delete(["3"])
            writer.commit()
        engine.build(texts(5), path, encoder=ENCODER, overwrite=True)
        assert reader.stats() == before
        reader.refresh()
        assert reader.stats()["n_documents"] == 5
