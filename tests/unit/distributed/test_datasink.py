"""Ray Data writes the same index as one process, and a complete one if processes or drivers are killed."""

from __future__ import annotations

import signal

import pytest
from support.indexes.sharded import ENCODER, columns, random_documents, random_queries
from support.indexes.striking_encoder import MomentEncoder, StrikingEncoder
from support.processes import run_python

from quarry import engine
from quarry.engine import Engine, InvalidDocument, WorkerFailed

ray = pytest.importorskip("ray", reason="the extra distributed is not installed")

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("cluster")]

ROWS = [
    {"id": document["id"], "text": document["text"], "number": document["metadata"]["number"]}
    for document in random_documents(120)
]
QUERIES = random_queries(10)


def dataset(rows, n_blocks=2):
    return ray.data.from_items(rows, override_num_blocks=n_blocks)


def sink(path, **options):
    from quarry.distributed import QuarryDatasink

    return QuarryDatasink(path, **{"encoder": ENCODER, "threads": 1} | options)


def hits(path):
    with Engine.open(path, encoder=ENCODER, backend="exact") as index:
        assert index.verify().n_documents == len(index)
        return [
            sorted(columns(each))
            for mode in ("dense", "hybrid")
            for each in index.search(QUERIES, k=20, mode=mode)
        ]


@pytest.fixture(scope="module")
def wanted(tmp_path_factory):
    path = tmp_path_factory.mktemp("wanted") / "idx"
    documents = [{"id": row["id"], "text": row["text"], "metadata": {"number": row["number"]}} for row in ROWS]
    engine.build(documents, path, encoder=ENCODER)
    return hits(path)


@pytest.mark.parametrize("shards", [None, 2])
def test_a_dataset_becomes_an_index(tmp_path, wanted, shards):
    written = sink(tmp_path / "idx", shards=shards)
    dataset(ROWS).write_datasink(written)
    assert written.report.n_documents == len(ROWS)
    assert hits(tmp_path / "idx") == wanted
    assert [each.name for each in tmp_path.iterdir()] == ["idx"]
    with Engine.open(tmp_path / "idx", encoder=ENCODER) as index:
        assert index.count({"number": 3}) == sum(row["number"] == 3 for row in ROWS)


def test_with_a_pool_of_actors(tmp_path, wanted):
    from quarry.distributed import build_index

    report = build_index(dataset(ROWS), tmp_path / "idx", workers=1, batch_size=50, encoder=ENCODER, threads=1)
    assert report.n_documents == len(ROWS)
    assert hits(tmp_path / "idx") == wanted
    bad = dataset([{"id": "punctuation", "text": "..."}], 1)
    with pytest.raises(InvalidDocument, match="punctuation"):
        build_index(bad, tmp_path / "idx", workers=1, encoder=ENCODER, overwrite=True)
    assert hits(tmp_path / "idx") == wanted
    report = build_index(
        bad, tmp_path / "none", workers=1, encoder=ENCODER, skip_invalid=True, overwrite=True, threads=1
    )
    assert (report.n_documents, report.n_skipped) == (0, 1)


@pytest.mark.parametrize("moment", ["before", "during", "after"])
def test_a_process_that_is_killed(tmp_path, wanted, moment):
    """A process that is killed once, before, while or after it writes a file, is replaced."""
    encoder = MomentEncoder(once=str(tmp_path / "once"), moment=moment)
    written = sink(tmp_path / "idx", encoder=encoder)
    dataset(ROWS, 1).write_datasink(written)
    assert (tmp_path / "once").exists()
    assert written.report.n_documents == len(ROWS)
    assert hits(tmp_path / "idx") == wanted
    assert not list(tmp_path.glob(".quarry-*"))


def test_a_document_that_always_ends_its_process(tmp_path):
    engine.build(["old"], tmp_path / "idx", encoder=ENCODER)
    rows = [*ROWS[:20], {"id": "the culprit", "text": "deadly", "number": 0}]
    with pytest.raises(WorkerFailed, match="'the culprit'"):
        dataset(rows, 1).write_datasink(sink(tmp_path / "idx", encoder=StrikingEncoder(), overwrite=True))
    assert [each.name for each in tmp_path.iterdir()] == ["idx"]
    with Engine.open(tmp_path / "idx", encoder=ENCODER, writable=True) as index:
        assert len(index) == 1


def test_an_actor_that_always_ends(tmp_path):
    from quarry.distributed import build_index

    rows = [*ROWS[:20], {"id": "the culprit", "text": "deadly", "number": 0}]
    with pytest.raises(WorkerFailed, match="'the culprit'"):
        build_index(dataset(rows, 1), tmp_path / "idx", workers=1, encoder=StrikingEncoder(), threads=1)
    assert not list(tmp_path.iterdir())


_DRIVER = """
import os, sys
import quarry.distributed
import ray
from quarry.distributed import QuarryDatasink
from support.indexes.sharded import ENCODER
from support.processes import kill_at_rename

path, moment, address = sys.argv[1:]
paths = {"env_vars": {"PYTHONPATH": os.environ["PYTHONPATH"]}}
ray.init(address=address, log_to_driver=False, runtime_env=paths)
kill_at_rename("MANIFEST", moment)
rows = ray.data.from_items([{"id": str(n), "text": f"w{n}"} for n in range(30)], override_num_blocks=1)
rows.write_datasink(QuarryDatasink(path, encoder=ENCODER, overwrite=True, threads=1))
"""


@pytest.mark.parametrize(("moment", "n_documents"), [("before", 1), ("after", 30)])
def test_a_driver_that_is_killed(tmp_path, moment, n_documents):
    path = tmp_path / "idx"
    engine.build(["old"], path, encoder=ENCODER)
    killed = run_python("-c", _DRIVER, path, moment, ray.get_runtime_context().gcs_address)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert list(tmp_path.glob(".quarry-*"))
    with Engine.open(path, encoder=ENCODER) as index:
        assert index.verify().n_documents == len(index) == n_documents
    Engine.open(path, encoder=ENCODER, writable=True).close()
    assert not list(tmp_path.glob(".quarry-*"))
