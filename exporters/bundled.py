"""Makes the encoder bundle that comes with Quarry.

``python -m exporters.bundled CHECKPOINT LICENSE TEXTS`` converts the checkpoint of all-MiniLM-L6-v2; TEXTS has one
text a line, for the parity record.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from engine.bundled import default_bundle_path
from exporters.to_onnx import export
from formats.encoder_bundle import EncoderBundle

__all__ = ["make_bundled"]

WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"

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


def make_bundled(checkpoint: Path, licence: Path, texts: Path) -> EncoderBundle:
    """Export the default encoder to where `engine.bundled` looks for it.

    Args:
        checkpoint: the folder of sentence-transformers/all-MiniLM-L6-v2.
        licence: the text of the Apache License 2.0.
        texts: UTF-8, one text a line.

    Raises:
        ValueError: the weights are other ones.
        QuarryError: what `exporters.to_onnx.export` raises; the bundle must not be there yet.
    """
    bundle = export(
        checkpoint,
        default_bundle_path(),
        name="all-MiniLM-L6-v2",
        texts=texts.read_text("utf-8").splitlines(),
        extra_files={"LICENSE": licence, "NOTICE": _NOTICE.encode("utf-8")},
    )
    if bundle.settings.source.sha256 != WEIGHTS_SHA256:
        msg = f"not the weights of all-MiniLM-L6-v2: {bundle.settings.source.sha256}"
        raise ValueError(msg)
    return bundle


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m exporters.bundled", description=__doc__)
    for name in ("checkpoint", "licence", "texts"):
        parser.add_argument(name, type=Path)
    make_bundled(**vars(parser.parse_args()))


if __name__ == "__main__":
    _main()
