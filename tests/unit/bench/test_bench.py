"""The measurements themselves: what they compute, keep and read."""

from __future__ import annotations

import shutil
import threading
from dataclasses import replace
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from support.bench.readme_run import ReadmeRun, write_subjects

from bench.__main__ import COMMANDS, main
from bench.data.collections import read_collection
from bench.data.prepare import REPRESENTATIONS, find_exact, prepare, representation_key
from bench.data.prepared import Prepared
from bench.data.synthetic import SYNTHETIC, prepare_synthetic
from bench.data.token_vectors import TokenRepresentation
from bench.data.trec_run import read_run, write_run
from bench.decisions.recall import measure
from bench.harness.fresh_process import ProcessFailed, in_fresh_process
from bench.harness.latency import concurrent_latency_ms, time_in_turn
from bench.harness.process_memory import private_bytes, resident_by_file, rss_bytes
from bench.harness.records import append_record, read_records
from bench.peers.adapters.fast_plaid_index import principal_components
from bench.peers.registry import PEERS, QUARRY
from bench.sweep.comparison import Choice, compare_peers, find_best, find_smallest
from bench.sweep.grid import IndexSetting, SearchSetting, Setting, list_settings
from bench.sweep.plots import pareto_front
from bench.sweep.tradeoff import measure_settings
from bench.system.export import open_graph, start_encoder
from bench.system.paper_table import PAPER_MS, retrieve_two_steps
from quarry.engine import Engine, build
from quarry.engine.bundled import default_bundle_path
from quarry.engine.encoding.opening import open_encoder
from quarry.engine.representation.kmeans import KMeans
from quarry.engine.representation.pieces import Pieces
from quarry.engine.representation.single import Mean
from quarry.engine.scoring.aggregation import aggregate
from quarry.engine.thresholds import Thresholds
from quarry.formats.container.directory import Directory
from quarry.formats.snapshot import Snapshot
from quarry.formats.vectors.search_setting import SearchSetting as EngineSetting


@pytest.fixture
def beir_folder(tmp_path: Path, small_corpus: list[dict[str, object]]) -> Path:
    """The small corpus with a question for each subject, whose four documents answer it."""
    return write_subjects(tmp_path / "subjects", small_corpus)


def test_recall_is_that_of_a_scan(beir_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As found by default, and by the same index if a search reads as little as possible."""
    monkeypatch.setattr("quarry.engine.quantization.candidates._LEAST", 1)
    build(beir_folder, tmp_path / "subjects", representation=Pieces(8), thresholds=Thresholds(list_rows=40))
    usual = Snapshot(Directory(tmp_path / "subjects"))
    (segment,) = usual.segments
    assert segment.quantizer is not None
    little = replace(segment.quantizer, search_settings=(EngineSetting(1, 1, 1),))
    least = Snapshot(usual.directory, [replace(segment, quantizer=little)], usual.manifest)
    texts = list(read_collection(beir_folder, "test").queries.values())
    queries = np.stack([open_encoder().encode_query(text) for text in texts])
    found = {(each["index"], each["k"]): each for each in measure({"usual": usual, "least": least}, queries)}
    for name, options in (("usual", {}), ("least", {"nprobe": 1, "candidates": 10})):
        with Engine.open(tmp_path / "subjects", backend="cpu_faiss") as index:
            hits = index.search_vectors(queries, k=10, **options)  # type: ignore[arg-type]
        with Engine.open(tmp_path / "subjects", backend="scan") as index:
            best = index.search_vectors(queries, k=10)
        shares = [
            len({hit.id for hit in ours} & {hit.id for hit in theirs}) / 10
            for ours, theirs in zip(hits, best, strict=True)
        ]
        assert found[name, 10]["recall"] == pytest.approx(np.mean(shares))
    assert found["least", 10]["recall"] < found["usual", 10]["recall"]
    assert (found["least", 10]["nprobe"], found["least", 10]["candidates"]) == (1, 10)


def test_recall_leaves_its_results(beir_folder: Path, tmp_path: Path) -> None:
    build(beir_folder, tmp_path / "ix", representation=Pieces(8), thresholds=Thresholds(list_rows=40))
    out = tmp_path / "recall.jsonl"
    paths = [str(tmp_path / "ix"), str(beir_folder), "--baseline", str(tmp_path / "ix")]
    assert main(["recall", *paths, "--out", str(out), "--queries", "5"]) == 0
    records = [(each["index"], each["k"], each["queries_of"], each["n_queries"]) for each in read_records(out)]
    names = ("ix", "ix (baseline)")
    assert records == [(name, k, "subjects", 5) for k in (10, 100) for name in names]


def test_recall_needs_inverted_lists(
    beir_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    build(beir_folder, tmp_path / "ix", representation=Pieces(8))
    assert main(["recall", str(tmp_path / "ix"), str(beir_folder), "--out", str(tmp_path / "out.jsonl")]) == 1
    assert "too small for inverted lists" in capsys.readouterr().err


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of this test's own."""
    monkeypatch.setenv("QUARRY_BENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def copied_run(readme_run: ReadmeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ReadmeRun:
    """The results of bench/README.md in folders of this test's own."""
    monkeypatch.setenv("QUARRY_BENCH_CACHE", str(readme_run.cache))
    copy = shutil.copytree(readme_run.results, tmp_path / "out")
    return ReadmeRun(readme_run.collection, readme_run.cache, copy)


def test_a_sweep_leaves_results_and_plots(copied_run: ReadmeRun) -> None:
    records = read_records(copied_run.results / "tradeoff.jsonl")
    plain = next(record for record in records if record["index"]["representation"] == "mean")
    assert plain["n_documents"] == 40
    assert plain["n_centroids"] == 40
    assert plain["recall_100"] == 1.0
    assert plain["ndcg_10"] > 0.8
    assert plain["bytes"]["codes"] == 0
    assert plain["n_callers"] >= 1
    assert plain["callers_p99_ms"] >= plain["callers_p50_ms"] > 0
    assert {record["axis"] for record in records} == {"representation", "codes alone", "nprobe"}
    assert all("skipped" not in record for record in records)
    assert {record["nlist"] for record in records if record["axis"] == "nprobe"} == {2}
    assert plain["nlist"] == 0
    (plot,) = copied_run.results.glob("*.png")
    assert plot.stat().st_size < 150_000


def test_a_sweep_is_resumed(copied_run: ReadmeRun, tmp_path: Path) -> None:
    results, runs = copied_run.results / "tradeoff.jsonl", tmp_path / "runs"
    records = read_records(results)
    lines = results.read_text(encoding="utf-8").splitlines(keepends=True)
    results.write_text("".join(lines[:-1]) + lines[-1][:-20], encoding="utf-8")  # stopped in the middle of a line
    assert len(read_records(results)) == len(lines) - 1
    before = next(copied_run.cache.glob("*/mean.f32")).stat().st_mtime_ns
    (plot,) = copied_run.results.glob("*.png")
    drawn, plain = plot.read_bytes(), records[0]
    peer = {"name": "x", "module": "x", "prepared": plain["prepared"], "machine": plain["machine"], "ndcg_10": 0.1}
    numbers = {"n_documents": 40, "vectors_disk_bytes": 40_000, "vector_p50_ms": 1.0}
    append_record(results.with_name("peers_subjects.jsonl"), {**peer, **numbers})
    arguments = ["tradeoff", str(copied_run.collection), "--quick", "--out", str(copied_run.results)]
    assert main([*arguments, "--runs", str(runs)]) == 0
    assert plot.read_bytes() != drawn  # the peer is on it
    assert [record["key"] for record in read_records(results)] == [record["key"] for record in records]
    assert next(copied_run.cache.glob("*/mean.f32")).stat().st_mtime_ns == before
    (run,) = runs.iterdir()
    assert run.name == f"{records[-1]['key']}.run"
    assert main(["judge", str(copied_run.collection), "--run", str(run)]) == 0


@pytest.mark.parametrize("quick", [True, False])
def test_the_settings_of_a_sweep_are_distinct_and_keep_indexes_together(quick: bool) -> None:
    keys = ["mean", "pieces-24", "pieces-96"]
    found = list_settings(keys, 384, quick=quick)
    assert len({setting.key for setting in found}) == len(found)
    assert {setting.index.representation for setting in found} == set(keys)
    changes = sum(one.index != other.index for one, other in pairwise(found))
    assert changes + 1 == len({repr(setting.index) for setting in found})


def test_synthetic_vectors_have_the_oracle_of_brute_force(tmp_path: Path) -> None:
    prepared = prepare_synthetic(200, 5, 16, 4, tmp_path)
    values, offsets = prepared.vectors(SYNTHETIC)
    queries = prepared.query_vectors()
    assert values.shape == (800, 16)
    np.testing.assert_allclose(np.linalg.norm(values, axis=1), 1, rtol=1e-5)
    for query, best in zip(queries, prepared.oracle(SYNTHETIC), strict=True):
        scores = [max(values[low:high] @ query) for low, high in pairwise(offsets.tolist())]
        assert best.tolist() == np.argsort(scores)[::-1][:100].tolist()


def test_the_oracle_of_few_documents_has_them_all() -> None:
    values = np.eye(3, dtype=np.float32)
    assert find_exact(values[1:2] + 0.1 * values[2:], values, np.array([0, 1, 2, 3])).tolist() == [[1, 2, 0]]


def test_a_run_keeps_its_order_through_a_file(tmp_path: Path) -> None:
    run = {"q1": {"b": 2.0, "c": 2.0, "a": 2.0, "d": -1.0}, "q2": {}, "q3": {"a": 1e-3}}
    write_run(tmp_path / "x.run", run, "tag")
    back = read_run(tmp_path / "x.run")
    assert list(back["q1"]) == ["b", "c", "a", "d"]
    assert sorted(back["q1"], key=lambda name: back["q1"][name])[::-1] == ["b", "c", "a", "d"]
    assert back["q1"]["a"] == pytest.approx(2.0)
    assert back["q3"] == {"a": 1e-3}
    assert (tmp_path / "x.run").read_text(encoding="utf-8").splitlines()[0] == "q1 Q0 b 1 2.0 tag"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("q Q0 d 1 0.5", "5 fields"),
        ("q Q0 d 1 x t", "'x'"),
        ("q Q0 d 1 nan t", "'nan'"),
        ("q Q0 d0 1 1 t", "repeated"),
    ],
)
def test_a_damaged_run_file_is_refused(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "x.run").write_text(f"q Q0 d0 1 0.5 t\n{line}\n", encoding="utf-8")
    with pytest.raises(ValueError, match=message) as caught:
        read_run(tmp_path / "x.run")
    assert "line 2" in str(caught.value)


def test_a_run_file_cannot_hold_a_name_with_a_space(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'a b'"):
        write_run(tmp_path / "x.run", {"q": {"a b": 1.0}}, "tag")


def test_the_front_contains_all_points_that_no_other_dominates() -> None:
    points = [(1.0, 0.5), (2.0, 0.4), (3.0, 0.9), (3.0, 0.8), (4.0, 0.9)]
    assert pareto_front(points, more_is_better=False) == [(1.0, 0.5), (3.0, 0.9)]
    assert pareto_front(points, more_is_better=True) == [(4.0, 0.9)]


def test_records_are_appended(tmp_path: Path) -> None:
    path = tmp_path / "new" / "x.jsonl"
    assert read_records(path) == []
    append_record(path, {"a": 1})
    append_record(path, {"a": 2})
    assert [record["a"] for record in read_records(path)] == [1, 2]


def test_a_process_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(ProcessFailed, match="no-such-folder"):
        in_fresh_process(
            "bench.sweep.probe:build_index",
            {
                "prepared": str(tmp_path / "no-such-folder"),
                "out": "",
                "representation": "mean",
                "build": {},
                "nlist": None,
                "lists": False,
            },
        )


def test_a_process_that_takes_too_long_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.harness.fresh_process._TIMEOUT_S", 0.01)
    with pytest.raises(ProcessFailed, match="no result within"):
        in_fresh_process("bench.system.probes:installed", {})


def test_a_build_that_fails_is_recorded_for_all_its_searches(beir_folder: Path, cache: Path) -> None:
    prepared = prepare(read_collection(beir_folder, "test"), open_encoder(), [Mean()], cache)
    broken = IndexSetting("mean", {"code_bytes": 7})  # does not divide the vectors
    searches = [Setting("x", broken, SearchSetting(nprobe=nprobe)) for nprobe in (1, 2)]
    whole = Setting("x", IndexSetting("mean", {"code_bytes": 0}), SearchSetting())
    first, second, third = measure_settings([*searches, whole], prepared, None)
    assert "code_bytes" in first["skipped"]
    assert first["skipped"] == second["skipped"]
    assert third["recall_10"] == 1.0


def test_an_unknown_measurement_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nonsense"]) == 2
    listed = capsys.readouterr().err
    assert all(name in listed for name in COMMANDS)


def test_every_measurement_has_a_name(repository: Path) -> None:
    found = {
        ".".join(path.relative_to(repository / "bench").with_suffix("").parts)
        for path in (repository / "bench").rglob("*.py")
        if "\ndef run(" in path.read_text(encoding="utf-8") and path.parent.name != "gpu"
    }
    assert found | {"gpu.command"} == {command.module for command in COMMANDS.values()}


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - {"gpu"}))  # which needs torch
def test_every_measurement_lists_its_arguments(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    for module in COMMANDS[name].needs:
        pytest.importorskip(module, reason=f"the measurement needs {module}")
    with pytest.raises(SystemExit) as caught:
        main([name, "--help"])
    assert caught.value.code == 0
    assert f"usage: python -m bench {name}" in capsys.readouterr().out


def test_a_subset_and_the_split_are_the_folders(beir_folder: Path) -> None:
    collection = read_collection(beir_folder, "test")
    assert len(collection.subset(None, 3).queries) == 3


def test_prepared_data_is_shared_by_sweep_peers_and_table(
    beir_folder: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["prepare", str(beir_folder)]) == 0
    prepared = Prepared(Path(capsys.readouterr().out.strip()))
    assert prepared.folder.parent == cache
    needed = [*REPRESENTATIONS, Mean(), Pieces(24), Pieces(64), KMeans(8)]
    assert all(prepared.has(representation_key(each)) for each in needed)


def test_tokens_are_all_of_them_and_components_keep_products() -> None:
    encoder = open_encoder()
    found = TokenRepresentation().represent("bread and butter", encoder.windows("bread and butter"), True)
    assert found.values.shape == (3, 384)
    np.testing.assert_allclose(np.linalg.norm(found.values, axis=1), 1, rtol=1e-5)
    generator = np.random.default_rng(0)
    flat = (generator.standard_normal((50, 3)) @ generator.standard_normal((3, 8))).astype(np.float32)
    projected = flat @ principal_components(flat, 3)
    np.testing.assert_allclose(projected @ projected.T, flat @ flat.T, atol=1e-3)
    assert principal_components(flat, 8).tolist() == np.eye(8).tolist()


def test_peers_are_measured_beside_quarry_and_reported(copied_run: ReadmeRun) -> None:
    path = copied_run.results / "peers.jsonl"
    records = {record["name"]: record for record in read_records(path)}
    flat, quarry = records["FAISS Flat"], records["Quarry, dense, one mean vector, int8"]
    assert flat["ndcg_10"] == pytest.approx(quarry["ndcg_10"], abs=0.02)  # int8 against float32
    assert flat["vectors_disk_bytes"] > 40 * 384 * 4 > quarry["vectors_disk_bytes"]
    assert "vector_p50_ms" not in records["bm25s"]
    assert records["bm25s"]["text_p50_ms"] > 0
    run = read_run(next(copied_run.results.glob("runs/*/FAISS_Flat.run")))
    best = Prepared(next(copied_run.cache.iterdir())).oracle("mean")[0]
    assert list(run["q-bread"])[:10] == [f"d{number}" for number in best[:10]]

    before = path.read_text(encoding="utf-8")
    arguments = ["peers", str(copied_run.collection), "--out", str(copied_run.results), "--only"]
    assert main([*arguments, "FAISS Flat"]) == 0  # measured before
    assert path.read_text(encoding="utf-8") == before
    assert main([*arguments, "Chroma"]) == 0
    missing = {record["name"]: record for record in read_records(path)}["Chroma"]
    assert "--install" in missing["skipped"]  # the cache has no environment for it

    assert main(["report", str(copied_run.results)]) == 0
    report = (copied_run.results / "report.md").read_text(encoding="utf-8")
    assert f"| FAISS Flat | {flat['ndcg_10']:.4f} |" in report
    assert "Not measured: Chroma" in report
    assert f"| FAISS Flat | {flat['ndcg_10']:.4f} | {flat['vectors_disk_bytes'] / 40:,.0f} (" in report


def test_the_cheapest_as_good_and_the_best_as_cheap_are_chosen() -> None:
    ours = [Choice("a", 0.5, 100, 0), Choice("b", 0.7, 300, 0), Choice("c", 0.7, 400, 0)]
    assert find_smallest(0.5, ours) == ours[0]
    assert find_smallest(0.6, ours) == ours[1]
    assert find_smallest(0.71, ours) is None
    assert find_best(299, ours) == ours[0]
    assert find_best(1000, ours) == ours[1]
    assert find_best(99, ours) is None


def test_claims_are_set_against_every_peer() -> None:
    common = {"n_documents": 10, "text_p50_ms": 2.0, "text_build_s": 5.0, "encoding_s": 4.0, "text_only": False}
    common |= {"stores_text": True}
    small = {**common, "ndcg_10": 0.6, "vectors_disk_bytes": 100, "text_disk_bytes": 200}
    large = {**common, "ndcg_10": 0.7, "vectors_disk_bytes": 1000, "text_disk_bytes": 2000}
    ours = {"module": "quarry_index", "settings": {"mode": "dense"}}
    peers = [{**small, "name": "Q", **ours}, {**large, "name": "P", "module": "p"}]
    lines = "\n".join(compare_peers(peers, []))
    assert "none; the best is 0.1000 below: Q" in lines
    assert "Fewer bytes than 0 of 1." in lines
    assert "| P | 0.7000 | 100 (200) | Q | 0.6000 | 10 (20) | -0.1000 |" in lines
    assert "| P | 2.00 | 9.0 | 100% | 56% |" in lines
    record = {"index": {"representation": "mean", "build": {}, "nlist": None}, "search": {}, "n_documents": 10}
    parts = dict.fromkeys(("centroids", "codes", "quantizers", "ids"), 200)
    sweep = [{**record, "bytes": parts, "size_bytes": 1000, "ndcg_10": 0.75}]
    assert "| mean, int8, codes of default | 0.7500 | 80 (100) | 80% |" in "\n".join(compare_peers(peers, sweep))


def test_functions_are_timed_in_turn_with_every_argument() -> None:
    calls: list[tuple[str, int]] = []
    functions = {name: lambda number, name=name: calls.append((name, number)) or number for name in "abc"}
    found = time_in_turn(functions, range(40))
    assert [number for _, number in calls] == sorted([*range(40)] * 3)
    assert len({tuple(name for name, _ in calls[low : low + 3]) for low in range(0, 120, 3)}) == 6  # all orders
    for timing in found.values():
        assert timing.results == list(range(40))
        assert timing.wall_ms.shape == timing.cpu_ms.shape == (40,)
        assert (timing.wall_ms > 0).all()


def test_callers_run_at_once() -> None:
    together = threading.Barrier(4, timeout=60)  # passes four calls that wait at the same time
    found = concurrent_latency_ms(lambda _: together.wait(), range(8), 4, "x_")
    assert found.keys() == {"x_p50_ms", "x_p95_ms", "x_p99_ms", "x_qps"}
    assert min(found.values()) > 0


def test_every_adapter_says_what_it_needs() -> None:
    for entry in PEERS:
        adapter = import_module(f"bench.peers.adapters.{entry.module}")
        assert adapter.IMPORTS
        assert entry.requirements
        assert {"build", "open", "search"} <= vars(adapter.Index).keys()
    assert len({entry.name for entry in (*PEERS, *QUARRY)}) == len(PEERS) + len(QUARRY)


def test_encoders_are_measured(readme_run: ReadmeRun) -> None:
    records = {record["name"]: record for record in read_records(readme_run.results / "encode.jsonl")}
    bundled = records["quarry int8 (bundled)"]
    assert bundled["ndcg_10"] > 0.8
    assert bundled["start_ms"] > 0
    assert bundled["n_documents"] == 40
    assert "skipped" in records["sentence-transformers"]


def test_the_papers_table_has_all_its_rows(readme_run: ReadmeRun) -> None:
    names = {record["name"] for record in read_records(readme_run.results / "paper_table.jsonl")}
    assert names == {*PAPER_MS, "retrieval, two steps, Quarry"}


def test_the_quality_of_representations_is_that_of_an_exact_search(readme_run: ReadmeRun) -> None:
    records = {
        record["representation"]: record for record in read_records(readme_run.results / "representation.jsonl")
    }
    assert records["mean"]["vectors_a_document"] == 1
    assert records["pieces"]["quality"]["ndcg_10"] > 0.8
    sweep = next(record for record in read_records(readme_run.results / "tradeoff.jsonl"))
    assert records["mean"]["quality"]["ndcg_10"] == pytest.approx(sweep["ndcg_10"], abs=0.02)  # float32, int8


def test_filters_and_modes_are_measured(readme_run: ReadmeRun) -> None:
    filtered = read_records(readme_run.results / "filters.jsonl")
    assert {record["mode"] for record in filtered} == {"dense", "lexical", "hybrid"}
    assert len(filtered) == 3 * 14
    assert all(record["ratio"] > 0 and record["evaluation_cpu_ms"] > 0 for record in filtered)
    modes = read_records(readme_run.results / "hybrid_latency.jsonl")
    assert [(record["mode"], record["k"]) for record in modes][-2:] == [("hybrid", 10), ("hybrid", 100)]
    backends = {record["backend"]: record for record in read_records(readme_run.results / "backends.jsonl")}
    assert backends["exact"]["recall_at_10"] == backends["scan"]["recall_at_10"] == 1
    lexical = {
        (each["name"], each["by"]): each["value"] for each in read_records(readme_run.results / "lexical.jsonl")
    }
    assert lexical["nDCG@10", "engine"] == pytest.approx(lexical["nDCG@10", "bm25s"], abs=0.02)


def test_two_steps_find_what_the_softmax_of_all_finds_where_all_are_recalled() -> None:
    generator = np.random.default_rng(0)
    centroids = generator.standard_normal((60, 8)).astype(np.float32)
    offsets = np.arange(0, 61, 3)
    query = generator.standard_normal(8).astype(np.float32)
    scores = aggregate(centroids @ query, offsets, 1.0)
    assert retrieve_two_steps(query, centroids, offsets).tolist() == np.argsort(-scores, kind="stable").tolist()


def test_a_backend_that_is_missing_is_recorded_and_reported(
    beir_folder: Path, cache: Path, tmp_path: Path
) -> None:
    collection = read_collection(beir_folder, "test")
    prepared = prepare(collection, open_encoder(), [Mean()], cache)
    setting = Setting("backend", IndexSetting("mean", {"code_bytes": 0}), SearchSetting("no such backend"))
    (record,) = measure_settings([setting], prepared, None)
    assert "unknown backend" in record["skipped"]
    append_record(tmp_path / "tradeoff.jsonl", record)
    assert main(["report", str(tmp_path)]) == 0
    assert "Not measured: mean, int8" in (tmp_path / "report.md").read_text(encoding="utf-8")


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="reads /proc")
def test_the_memory_statistics_are_complete() -> None:
    found = resident_by_file()
    assert sum(found.values()) == pytest.approx(rss_bytes(), rel=0.05)
    assert found["private"] == pytest.approx(private_bytes(), rel=0.05)
    assert len(found) > 3


@pytest.mark.parametrize("lean", [False, True])
def test_starts_of_an_encoder_are_measured(lean: bool) -> None:
    opened = {"bundle": str(default_bundle_path()), "lean": lean}
    session, started = open_graph(opened), start_encoder(opened)
    assert min(session["session_ms"], started["start_ms"], started["query_p50_ms"], started["start_cpu_s"]) > 0
    assert started["start_rss_bytes"] >= session["session_private_bytes"] > 0
