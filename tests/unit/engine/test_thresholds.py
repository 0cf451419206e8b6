from __future__ import annotations

import pytest
from support.indexes.stored import only_segment
from support.indexes.word_encoder import WordEncoder

from quarry import engine
from quarry.engine import Engine, InvalidSetting
from quarry.engine.thresholds import MergeLimits, Thresholds
from quarry.formats.container.directory import WriterLimits

ENCODER = WordEncoder(dim=16)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (Thresholds, {"list_rows": -1}),
        (Thresholds, {"training_rows": 1.5}),
        (Thresholds, {"graph_rows": True}),
        (Thresholds, {"nlist": 0}),
        (Thresholds, {"merging": {"width": 3}}),
        (Thresholds, {"writing": None}),
        (Thresholds, {"writing": WriterLimits(page_postings=0)}),
        (Thresholds, {"writing": WriterLimits(page_postings=1 << 80)}),
        (MergeLimits, {"width": 1}),
        (MergeLimits, {"floor_bytes": 0}),
        (MergeLimits, {"max_bytes": "5 GB"}),
        (MergeLimits, {"dead_share": -0.1}),
        (MergeLimits, {"dead_share": float("nan")}),
        (MergeLimits, {"dead_bytes": None}),
    ],
)
def test_values_that_are_not_valid(kind, values):
    with pytest.raises(InvalidSetting):
        kind(**values)


def test_something_else_is_refused(tmp_path):
    with pytest.raises(InvalidSetting, match="thresholds is of a wrong type"):
        engine.build(["a text"], tmp_path / "ix", encoder=ENCODER, thresholds={"list_rows": 1})
    assert not (tmp_path / "ix").exists()
    engine.build(["a text"], tmp_path / "ix", encoder=ENCODER)
    with pytest.raises(InvalidSetting, match="thresholds is of a wrong type"):
        Engine.open(tmp_path / "ix", thresholds=WriterLimits())


def test_they_decide_when_there_are_lists_and_how_many(tmp_path):
    texts = [f"text{number} word{number % 7}" for number in range(80)]
    found = []
    for number, chosen in enumerate((Thresholds(), Thresholds(list_rows=80), Thresholds(list_rows=80, nlist=2))):
        path = tmp_path / str(number)
        engine.build(texts, path, encoder=ENCODER, code_bytes=4, thresholds=chosen)
        with only_segment(path) as segment:
            quantizer = segment.quantizer
            found.append(quantizer.nlist if quantizer else 0)
    assert found[0] == 0 < found[2] == 2 < found[1]
