"""Runs batches with torch, whose calls are captured as CUDA graphs. Not yet run on a GPU."""

from __future__ import annotations

import logging
from collections import Counter
from functools import partial

import numpy as np
import torch

from quarry.engine.encoding.runtimes.torch_graph import TorchGraph
from quarry.engine.encoding.tokenizer import Ids
from quarry.engine.gpu.stream import SideStream
from quarry.engine.gpu.transfer import send
from quarry.formats.bundle.encoder import EncoderBundle
from quarry.formats.errors import CorruptFile

__all__ = ["TorchRunner"]

_log = logging.getLogger(__name__)
_LENGTH_STEP = 8  # lengths are rounded up, so that few graphs are needed
_MOST_GRAPHS = 64  # a batch of another shape runs as it is
_Key = tuple[str, int, int]  # output, number of texts, length


class TorchRunner:
    """A `quarry.engine.encoding.runtimes.batched_encoder.BatchRunner` for graphs of BERT-like networks.

    Graphs in fp32, fp16 and int8 are computed with float weights and activations. On a CUDA device shapes are
    captured as CUDA graphs: that of a single text at its first use, that of a batch at its second.

    Args:
        bundle: the bundle.
        name: file name of the graph.
        device: "cuda" or "cpu".
        kind: dtype of weights and activations; None: float32 on the CPU, float16 on a CUDA device, or bfloat16 if
            the numbers of this network exceed float16.

    Raises:
        BackendUnavailable: onnx is not installed, or the graph has an operator that is not supported.
        CorruptFile: the graph cannot be run, or is not an encoder's.
    """

    max_batch = 1024

    def __init__(self, bundle: EncoderBundle, name: str, device: str, kind: torch.dtype | None = None) -> None:
        self.place = torch.device("cuda", 0) if device == "cuda" else torch.device("cpu")
        self._stream = SideStream(self.place)
        self._window = bundle.settings.window
        self._uses: Counter[_Key] = Counter()
        self._graphs: dict[_Key, _Graphed | None] = {}  # None: cannot be captured
        path, usual = bundle.path / name, torch.float32 if device == "cpu" else torch.float16
        self._graph = TorchGraph(path, self.place, kind or usual)
        if not {"pooled"} <= set(self._graph.outputs) <= {"pooled", "token_vectors"}:
            raise CorruptFile(
                "the graph has other outputs than an encoder's", path=path, actual=self._graph.outputs
            )
        ids = np.arange(1, min(self._window, _LENGTH_STEP) + 1)[np.newaxis]
        if kind is None and not bool(self.run("pooled", ids, np.ones_like(ids)).isfinite().all()):
            _log.warning("encoder %s is computed in bfloat16: its numbers exceed float16", bundle.settings.name)
            self._graph, self._graphs = TorchGraph(path, self.place, torch.bfloat16), {}

    def run(self, output: str, ids: Ids, mask: Ids) -> torch.Tensor:
        """See `quarry.engine.encoding.runtimes.batched_encoder.BatchRunner.run`."""
        with torch.inference_mode():
            return self._stream.run(partial(self._run, output, ids, mask))

    def _run(self, output: str, ids: Ids, mask: Ids) -> torch.Tensor:
        """Run a batch on the current stream."""
        n_texts, length = ids.shape
        added = min(-length % _LENGTH_STEP, max(0, self._window - length))
        batch = [send(np.pad(each, ((0, 0), (0, added))), self.place) for each in (ids, mask)]
        graphed = self._find_graph((output, n_texts, length + added)) if self.place.type == "cuda" else None
        values = self._graph(output, *batch).float() if graphed is None else graphed.run(*batch)
        return values[:, :length] if output == "token_vectors" else values

    def _find_graph(self, key: _Key) -> _Graphed | None:
        """Return the CUDA graph for a shape; None if there is none, or none yet."""
        self._uses[key] += 1
        if key in self._graphs or len(self._graphs) >= _MOST_GRAPHS or self._uses[key] < min(key[1], 2):
            return self._graphs.get(key)
        self._graphs[key] = None
        try:
            self._graphs[key] = _Graphed(self._graph, key, self._stream)
        except RuntimeError as error:  # of torch and the driver
            _log.warning("no CUDA graph for %d texts of %d tokens: %s", *key[1:], error)
        return self._graphs[key]


class _Graphed:
    """A CUDA graph for one shape, with fixed inputs and a fixed result."""

    def __init__(self, graph: TorchGraph, key: _Key, stream: SideStream) -> None:
        output, *shape = key
        self._inputs = [torch.ones(shape, dtype=torch.int64, device=stream.place) for _ in range(2)]
        self._graph = stream.capture(lambda: self._keep(graph(output, *self._inputs)))

    def _keep(self, output: torch.Tensor) -> None:
        self._output = output

    def run(self, *batch: torch.Tensor) -> torch.Tensor:
        """Return the result for token ids and mask, as a new float32 tensor."""
        for target, values in zip(self._inputs, batch, strict=True):
            target.copy_(values)
        self._graph.replay()
        return self._output.to(torch.float32, copy=True)
