"""Ray Data writes the same index as one process, and a complete one if processes or drivers are killed."""

from __future__ import annotations

import signal
import sys

import pytest
from support.indexes.device_encoder import DeviceEncoder
from support.indexes.sharded import ENCODER, columns, random_documents, random_queries
from support.indexes.striking_encoder import MomentEncoder, StrikingEncoder
from support.processes import run_python

from quarry import engine
from quarry.engine import AccessFailed, Engine, IndexExists, InvalidDocument, InvalidSetting, WorkerFailed

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
    report = build_index(
        bad, tmp_path / "none", workers=1, encoder=ENCODER, skip_invalid=True, overwrite=True, threads=1
    )
    assert (report.n_documents, report.n_skipped) == (0, 1)


@pytest.mark.parametrize("moment", ["during", "after"])
def test_a_process_that_is_killed(tmp_path, wanted, moment):
    """A process that is killed once, while or after it writes a file, is replaced."""
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

path, address = sys.argv[1:]
paths = {"env_vars": {"PYTHONPATH": os.environ["PYTHONPATH"]}}
ray.init(address=address, log_to_driver=False, runtime_env=paths)
kill_at_rename("MANIFEST", "before")
rows = ray.data.from_items([{"id": str(n), "text": f"w{n}"} for n in range(30)], override_num_blocks=1)
rows.write_datasink(QuarryDatasink(path, encoder=ENCODER, overwrite=True, threads=1))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL on this system")
def test_a_driver_that_is_killed(tmp_path):
    path = tmp_path / "idx"
    engine.build(["old"], path, encoder=ENCODER)
    killed = run_python("-c", _DRIVER, path, ray.get_runtime_context().gcs_address)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert list(tmp_path.glob(".quarry-*"))
    with Engine.open(path, encoder=ENCODER) as index:
        assert index.verify().n_documents == len(index) == 1
    Engine.open(path, encoder=ENCODER, writable=True).close()
    assert not list(tmp_path.glob(".quarry-*"))


def build_with_tasks(rows, path, **options):
    dataset(rows).write_datasink(sink(path, **options))


def build_with_actors(rows, path, **options):
    from quarry.distributed import build_index

    return build_index(dataset(rows), path, workers=1, **{"encoder": ENCODER, "threads": 1} | options)


class UnloadableEncoder(type(ENCODER)):
    """An encoder that can be pickled but not loaded."""

    def __reduce__(self):
        return int, ("no number",)


class UnpicklableEncoder(type(ENCODER)):
    def __reduce__(self):
        raise ValueError("pointers cannot be pickled")


@pytest.mark.parametrize("build", [build_with_tasks, build_with_actors])
def test_what_is_wrong_is_an_error_of_quarry_that_names_it(tmp_path, build):
    """The error is not one of Ray, no file is left, and the old index stays."""
    engine.build(["old"], tmp_path / "idx", encoder=ENCODER)
    (tmp_path / "file").touch()
    rows = ROWS[:3]
    lists, fractions = ([{**row, name: value} for row in rows] for name, value in (("text", ["a"]), ("id", 1.5)))
    cases = [
        (rows, "idx", {"overwrite": False}, IndexExists, "there is an index already"),
        (rows, "idx", {"shards": 2}, IndexExists, "the index there has no shards"),
        (rows, "file/idx", {}, IndexExists, "a file is in the way"),
        (rows, "/proc/idx", {}, AccessFailed, "cannot be made"),
        (rows, "idx", {"text": "body"}, InvalidSetting, "no column 'body'"),
        (rows, "idx", {"id": "key"}, InvalidSetting, "no column 'key'"),
        (lists, "idx", {}, InvalidDocument, "field 'text' is not a text"),
        (fractions, "idx", {}, InvalidDocument, "field 'id' is not a str"),
        ([{"id": "empty", "text": ""}], "idx", {}, InvalidDocument, "'empty'.*field 'text'"),
        (rows, "idx", {"encoder": UnpicklableEncoder()}, InvalidSetting, "pointers cannot be pickled"),
        (rows, "idx", {"encoder": UnloadableEncoder()}, InvalidSetting, "cannot be loaded.*ValueError"),
    ]
    if build is build_with_actors:  # actors start slowly, and call the same functions as tasks
        messages = ("no shards", "'empty'", "be loaded")  # before actors, in one, and before its function
        cases = [case for case in cases if any(each in case[-1] for each in messages)]
    for given, path, options, kind, message in cases:
        with pytest.raises(kind, match=message) as caught:
            build(given, tmp_path / path, **{"overwrite": True} | options)
        assert type(caught.value) is kind
        assert {each.name for each in tmp_path.iterdir()} == {"idx", "file"}
        with Engine.open(tmp_path / "idx", encoder=ENCODER) as index:
            assert (len(index), index.stats()["generation"]) == (1, 1)


class DeadlyEncoder(type(ENCODER)):
    """Ends every process that loads it."""

    def __reduce__(self):
        return signal.raise_signal, (signal.SIGKILL,)


def test_an_encoder_that_ends_its_process_when_it_is_loaded(tmp_path):
    """Ray would start new processes for ever."""
    with pytest.raises(WorkerFailed, match="3 processes ended while they loaded the encoder"):
        build_with_tasks(ROWS[:3], tmp_path / "idx", encoder=DeadlyEncoder())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("build", [build_with_tasks, build_with_actors])
def test_a_dataset_without_rows_and_one_with_repeated_ids(tmp_path, build):
    """The last of several rows with the same id is kept, also across blocks."""
    build([], tmp_path / "empty")
    assert hits(tmp_path / "empty") == [[]] * 20
    build([{"id": str(number % 3), "text": f"w{number}"} for number in range(30)], tmp_path / "idx")
    with Engine.open(tmp_path / "idx", encoder=ENCODER) as index:
        assert sorted(document.text for document in index) == ["w27", "w28", "w29"]


@pytest.mark.parametrize("build", [build_with_tasks, build_with_actors])
def test_an_error_of_the_dataset_is_not_hidden(tmp_path, build, monkeypatch):
    def fail(_):
        raise ValueError("the function of the application")

    monkeypatch.setitem(globals(), "dataset", lambda rows: ray.data.from_items(rows).map(fail))
    with pytest.raises(ray.exceptions.RayTaskError, match="the function of the application"):
        build(ROWS[:3], tmp_path / "idx")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "wrong",
    [
        {"workers": 0},
        {"workers": "2"},
        {"batch_size": 0},
        {"num_cpus": -1},
        {"num_gpus": 1.5},
        {"num_gpus": True},
        {"num_cpus": float("nan")},
    ],
    ids=str,
)
def test_numbers_of_actors_that_are_out_of_range(tmp_path, wrong):
    from quarry.distributed import build_index

    with pytest.raises(InvalidSetting, match=f"{next(iter(wrong))} is out of range"):
        build_index(dataset(ROWS[:3]), tmp_path / "idx", **{"workers": 1, "encoder": ENCODER} | wrong)
    with pytest.raises(InvalidSetting, match="dataset is not a dataset"):
        build_index(ROWS, tmp_path / "idx", workers=1, encoder=ENCODER)
    assert not list(tmp_path.iterdir())


def test_actors_that_need_a_device(tmp_path, wanted):
    """Two actors share a device that Ray is configured with; the encoder runs on the CPU."""
    from quarry.distributed import build_index

    options = {"workers": 2, "num_cpus": 0.5, "num_gpus": 0.5, "encoder": DeviceEncoder(), "threads": 1}
    build_index(dataset(ROWS), tmp_path / "idx", **options)
    assert hits(tmp_path / "idx") == wanted
