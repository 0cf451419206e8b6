"""Runs batches with ONNX Runtime on a device; outputs are written into torch tensors."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from quarry.engine.encoding.runtimes.onnx_encoder import check_encoder_graph
from quarry.engine.encoding.runtimes.onnx_session import open_cuda_session, open_session
from quarry.engine.encoding.tokenizer import Ids
from quarry.formats.bundle.encoder import EncoderBundle
from quarry.formats.errors import CorruptFile

if TYPE_CHECKING:
    import torch
    from onnxruntime import InferenceSession

__all__ = ["OnnxRunner"]


class OnnxRunner:
    """A `BatchRunner` that uses ONNX Runtime. Not yet run on a GPU.

    Args:
        bundle: the bundle.
        name: file name of the graph.
        device: "cuda", or "cpu" for comparison (`OnnxEncoder` is faster there for most graphs).

    Raises:
        BackendUnavailable: ONNX Runtime cannot use the device.
        CorruptFile: the graph cannot be run, or is not an encoder's.
    """

    max_batch = 1024

    def __init__(self, bundle: EncoderBundle, name: str, device: str) -> None:
        import torch  # before the runtime's CUDA part, which uses the libraries that torch brings

        from quarry.engine.gpu.stream import SideStream

        self.place = torch.device("cuda", 0) if device == "cuda" else torch.device("cpu")
        self._stream = SideStream(self.place)
        self._path = path = bundle.path / name
        self._session: InferenceSession = (
            open_cuda_session(path, self._stream.handle) if device == "cuda" else open_session(path)
        )
        check_encoder_graph(self._session, bundle, name)
        self._dim = bundle.settings.dim
        self._input_names = [node.name for node in self._session.get_inputs()]
        self._halves = {node.name for node in self._session.get_outputs() if node.type == "tensor(float16)"}

    def run(self, output: str, ids: Ids, mask: Ids) -> torch.Tensor:
        """See `quarry.engine.encoding.runtimes.batched_encoder.BatchRunner.run`."""
        return self._stream.run(partial(self._run, output, ids, mask))

    def _run(self, output: str, ids: Ids, mask: Ids) -> torch.Tensor:
        """Run a batch on the current stream, which is the session's stream too."""
        import torch

        from quarry.engine.gpu.transfer import send

        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        inputs = {name: send(given[name], self.place) for name in self._input_names}
        shape = (*ids.shape, self._dim) if output == "token_vectors" else (len(ids), self._dim)
        kind = torch.float16 if output in self._halves else torch.float32
        output_tensor = torch.empty(shape, dtype=kind, device=self.place)
        binding, where = self._session.io_binding(), (self.place.type, self.place.index or 0)
        for name, values in inputs.items():
            binding.bind_input(name, *where, np.int64, tuple(values.shape), values.data_ptr())
        found_type = np.float16 if kind == torch.float16 else np.float32
        binding.bind_output(output, *where, found_type, shape, output_tensor.data_ptr())
        try:
            self._session.run_with_iobinding(binding)
        except Exception as error:  # the library's errors have no public common class
            raise CorruptFile(f"the graph cannot be run: {error}", path=self._path) from error
        return output_tensor.float()
