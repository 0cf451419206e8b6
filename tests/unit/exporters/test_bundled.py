"""The encoder that comes with the package, and the one that did before."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from support.models.source_weights import source_weights

from quarry.engine.bundled import bundled_path
from quarry.exporters.bundled import WEIGHTS_SHA256, make_bundled
from quarry.formats.bundle.encoder import load_bundle
from quarry.formats.errors import InvalidSetting

LICENSES = {
    "all-MiniLM-L6-v2": ("apache-2.0", "Apache License", "END OF TERMS AND CONDITIONS"),
    "quarry-minilm-l6": (
        "cc-by-sa-4.0",
        "Attribution-ShareAlike 4.0 International",
        "Section 8 -- Interpretation.",
    ),
}


@pytest.mark.parametrize("name", LICENSES)
def test_a_bundled_encoder_is_what_its_notice_says(name: str) -> None:
    bundle = load_bundle(bundled_path(name))
    assert bundle.verify_files() < 25_000_000
    assert {path.name for path in bundle.path.iterdir()} == {"bundle.json", *bundle.files}
    assert {"LICENSE", "NOTICE", "relevance.json", "reference.json"} <= set(bundle.files)
    settings = bundle.settings
    assert settings.source.sha256 == WEIGHTS_SHA256[name]
    license_name, *phrases = LICENSES[name]
    assert (settings.precision, settings.dim, settings.window) == ("int8", 384, 256)
    assert settings.license == license_name
    assert settings.parity is not None
    assert min(settings.parity.token_mean, settings.parity.pooled_mean) >= 0.98
    notice = (bundle.path / "NOTICE").read_text("utf-8")
    assert WEIGHTS_SHA256[name] in notice
    assert "sentence-transformers/all-MiniLM-L6-v2" in notice
    text = (bundle.path / "LICENSE").read_text("utf-8")
    assert all(phrase in text for phrase in phrases)


def test_the_trained_encoder_names_its_data(repository: Path) -> None:
    """Notices name all data sources, because share-alike texts require attribution."""
    folder = bundled_path("quarry-minilm-l6")
    notice, card = ((folder / name).read_text("utf-8") for name in ("NOTICE", "README.md"))
    recipe = tomllib.loads((repository / "training" / "recipes" / "default.toml").read_text("utf-8"))
    for source in recipe["data"]:
        assert source["origin"] in card
        assert source["licence"] in card
    for name in ("all-mpnet-base-v2", "SQuAD", "Natural Questions", "OpenStax", "CC BY-SA 4.0"):
        assert name in notice


@pytest.mark.parametrize("name", LICENSES)
def test_the_bundled_graph_is_what_the_exporter_makes(name: str, tmp_path: Path) -> None:
    shipped = load_bundle(bundled_path(name))
    made = make_bundled(source_weights(name, tmp_path), tmp_path / "made")
    assert made.identity == shipped.identity
    assert made.model_path.read_bytes() == shipped.model_path.read_bytes()
    assert made.settings.source == shipped.settings.source


def test_other_weights_are_not_made_the_bundled_encoder(checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="not the weights of a bundled encoder"):
        make_bundled(checkpoint, tmp_path / "made")
    assert not (tmp_path / "made").exists()
