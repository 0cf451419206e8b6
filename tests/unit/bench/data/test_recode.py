"""An index made again of the vectors of another one, with other codes."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from itertools import islice
from pathlib import Path

from bench.data.recode import recode_index
from quarry import engine
from quarry.engine.bundled.stdlib_docstrings import stdlib_documents
from quarry.engine.encoding.opening import open_encoder
from quarry.engine.thresholds import Thresholds
from quarry.formats.container.directory import Directory
from quarry.formats.snapshot import Snapshot

FEW = Thresholds(calibration_queries=64, training_rows=256)


def test_searches_are_calibrated_with_the_texts(
    tmp_path: Path,
) -> None:
    texts = {each["id"]: each["text"] for each in islice(stdlib_documents(), 200)}
    documents = [{"id": name, "text": text} for name, text in texts.items()]
    engine.build(documents, tmp_path / "full", progress=False)
    full = Snapshot(Directory(tmp_path / "full"))
    settings = replace(full.manifest.settings, centroids="none", code_bytes=24)
    for folder in ("with", "without"):
        (tmp_path / folder).mkdir()
    encoder = open_encoder()
    recode_index(full, tmp_path / "with", settings, None, FEW, encoder, texts).close()
    recode_index(full, tmp_path / "without", settings, None, FEW).close()
    found = {}
    for folder in ("with", "without"):
        with closing(Snapshot(Directory(tmp_path / folder))) as snapshot:
            (segment,) = snapshot.segments
            assert segment.quantizer is not None
            found[folder] = [setting.k for setting in segment.quantizer.search_settings]
    full.close()
    assert found == {"with": [10, 100], "without": []}
