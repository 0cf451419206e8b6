"""Runs batches with ONNX Runtime on a device, inputs and outputs bound so that they are copied once each way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from engine.encoder_onnx import check_encoder_graph
from engine.onnx_session import import_onnxruntime, open_cuda_session, open_session
from engine.tokenizer import Ids
from formats.encoder_bundle import EncoderBundle

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

__all__ = ["OnnxRunner"]


class OnnxRunner:
    """An `engine.batched_encoder.BatchRunner`.

    Args:
        bundle: whose graph to run.
        name: of the graph's file.
        device: "cuda", or "cpu", where single texts are faster for most graphs and this serves comparison.

    Raises:
        BackendUnavailable: ONNX Runtime cannot use the device.
        CorruptFile: the graph cannot be run, or is no encoder's.
    """

    max_batch = 1024

    def __init__(self, bundle: EncoderBundle, name: str, device: str) -> None:
        self._device = device
        self._session: InferenceSession = (open_cuda_session if device == "cuda" else open_session)(
            bundle.path / name
        )
        check_encoder_graph(self._session, bundle, name)
        self._input_names = [node.name for node in self._session.get_inputs()]

    def run(self, output: str, ids: Ids, mask: Ids) -> npt.NDArray[np.float32]:
        """See `engine.batched_encoder.BatchRunner.run`."""
        values = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        on_device = import_onnxruntime().OrtValue.ortvalue_from_numpy
        binding = self._session.io_binding()
        for name in self._input_names:
            binding.bind_ortvalue_input(name, on_device(values[name], self._device, 0))
        binding.bind_output(output, "cpu")
        self._session.run_with_iobinding(binding)
        vectors: npt.NDArray[np.float32] = binding.copy_outputs_to_cpu()[0].astype(np.float32, copy=False)
        return vectors
