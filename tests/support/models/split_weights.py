"""Bundles whose weights are in a file beside their graph, as other tools write them."""

from __future__ import annotations

from pathlib import Path

import onnx

from quarry.formats.bundle.encoder import EncoderBundle, load_bundle, write_bundle


def with_weights_apart(path: Path, folder: Path) -> EncoderBundle:
    """Copy an encoder's bundle, with its weights in model.onnx.data."""
    bundle = load_bundle(path)
    split = folder.with_name(f"{folder.name}.graph") / "model.onnx"
    split.parent.mkdir()
    onnx.save(
        onnx.load(bundle.model_path),
        split,
        save_as_external_data=True,
        location="model.onnx.data",
        size_threshold=1024,
        convert_attribute=False,
    )
    files: dict[str, bytes | Path] = {name: bundle.path / name for name in bundle.files}
    files |= {each.name: each for each in split.parent.iterdir()}
    return write_bundle(folder, bundle.settings, files)
