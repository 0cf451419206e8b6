"""The comparison of Quarry with each other library."""

from __future__ import annotations

from bench.sweep.comparison import Choice, compare_peers, find_best, find_smallest


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
