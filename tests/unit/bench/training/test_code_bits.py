"""The comparison of codes of 4 and 8 bits a sub-quantizer."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.__main__ import COMMANDS, main
from bench.data.collections import Collection
from bench.harness.records import read_records
from bench.training import code_bits
from quarry.engine import build


def test_the_command_records_both_kinds_of_codes(
    coded_collection: Collection, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for module in COMMANDS["code_bits"].needs:
        pytest.importorskip(module, reason=f"the measurement needs {module}")
    monkeypatch.setitem(code_bits.COLLECTIONS, "cranfield", lambda: coded_collection)
    index, out = tmp_path / "index", tmp_path / "results.jsonl"
    build(({"id": key, "text": text} for key, text in coded_collection.documents.items()), index, progress=False)
    assert main(["code_bits", str(index), "cranfield", "--code-bytes", "24", "--out", str(out)]) == 0
    four, eight = read_records(out)
    assert (four["nbits"], eight["nbits"]) == (4, 8)
    for found in (four, eight):
        assert found["code_bytes"] == 24
        assert all(0 < float(str(found[member])) <= 1 for member in ("ndcg_10", "hybrid_ndcg_10"))
    assert int(str(eight["index_bytes"])) > int(str(four["index_bytes"]))  # the codebook is larger
