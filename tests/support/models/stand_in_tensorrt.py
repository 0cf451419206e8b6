"""A substitute for TensorRT's runtime that computes with ONNX Runtime, in main memory.

It follows TensorRT's documentation: a context runs only after it has a profile, the shapes of all inputs
within the profile, and the addresses of all tensors. It is stricter than TensorRT about missing settings.
"""

from __future__ import annotations

import ctypes
from enum import Enum
from types import SimpleNamespace

import numpy as np
import onnxruntime

DataType = Enum("DataType", ["FLOAT", "HALF", "INT32", "INT64"])
TensorIOMode = Enum("TensorIOMode", ["NONE", "INPUT", "OUTPUT"])
_TYPES = {
    "tensor(float)": (DataType.FLOAT, np.float32),
    "tensor(float16)": (DataType.HALF, np.float16),
    "tensor(int64)": (DataType.INT64, np.int64),
}


class _Engine:
    def __init__(self, session, profiles):
        self.session = session
        self.profiles = profiles
        self.nodes = {node.name: node for node in [*session.get_inputs(), *session.get_outputs()]}
        self.inputs = {node.name for node in session.get_inputs()}
        self.num_io_tensors = len(self.nodes)

    def get_tensor_name(self, number):
        return list(self.nodes)[number]

    def get_tensor_mode(self, name):
        return TensorIOMode.INPUT if name in self.inputs else TensorIOMode.OUTPUT

    def get_tensor_dtype(self, name):
        return _TYPES[self.nodes[name].type][0]

    def create_execution_context(self, strategy):
        assert strategy == "when the profile changes"
        return _Context(self)


class _Context:
    def __init__(self, engine):
        self._engine = engine
        self._profile = None
        self._shapes, self._addresses = {}, {}

    def set_optimization_profile_async(self, number, stream):
        assert isinstance(stream, int)
        self._profile = self._engine.profiles[number]
        return True

    def set_input_shape(self, name, shape):
        assert name in self._engine.inputs
        assert self._profile is not None
        self._shapes[name] = tuple(shape)
        return self._profile.accepts(tuple(shape))

    def get_tensor_shape(self, name):
        if name in self._engine.inputs:
            return self._shapes[name]
        assert self._shapes.keys() == self._engine.inputs
        given = next(iter(self._shapes.values()))  # (batch, length), the only dimensions that have a name
        extents = enumerate(self._engine.nodes[name].shape)
        return tuple(given[number] if isinstance(each, str) else each for number, each in extents)

    def set_tensor_address(self, name, address):
        assert isinstance(address, int)
        self._addresses[name] = address
        return True

    def execute_async_v3(self, stream):
        assert isinstance(stream, int)
        assert self._addresses.keys() == self._engine.nodes.keys()
        given = {name: self._memory(name) for name in self._engine.inputs}
        names = [name for name in self._engine.nodes if name not in self._engine.inputs]
        for name, found in zip(names, self._engine.session.run(names, given), strict=True):
            self._memory(name)[...] = found
        return True

    def _memory(self, name):
        kind = np.dtype(_TYPES[self._engine.nodes[name].type][1])
        shape = self.get_tensor_shape(name)
        n_bytes = int(np.prod(shape)) * kind.itemsize
        raw = (ctypes.c_byte * n_bytes).from_address(self._addresses[name])
        return np.frombuffer(raw, kind).reshape(shape)


def tensorrt(graph, profiles):
    """Return the module; its runtime deserializes every plan as an engine of this graph with these profiles."""

    class Runtime:
        def __init__(self, logger):
            assert logger == "errors"

        def deserialize_cuda_engine(self, plan):
            session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
            return _Engine(session, profiles) if plan == b"plan" else None

    class Logger:
        ERROR = 0

        def __new__(cls, severity):
            return {cls.ERROR: "errors"}[severity]

    strategies = SimpleNamespace(ON_PROFILE_CHANGE="when the profile changes")
    return SimpleNamespace(
        Runtime=Runtime, Logger=Logger, ExecutionContextAllocationStrategy=strategies, __version__="11.4.0"
    )
