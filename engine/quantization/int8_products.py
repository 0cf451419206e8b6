"""Inner products of many int8 vectors with the same ones, by ONNX Runtime.

A CPU with AVX-512 VNNI multiplies and adds four times as many int8 numbers as float32 numbers in the same time.
Of the libraries that the engine needs, only ONNX Runtime has a matrix product for it, the operator MatMulInteger:
with 1,024 vectors of 384 numbers it takes 1.9 us for a row, float32 products in OpenBLAS take 7.7 us. The rows
are passed as uint8 with a zero point, because the kernel for int8 rows takes 13 times as long.

On x86 CPUs without these instructions the operator adds pairs of products in 16 bits, which overflow; see
`has_fast_int8`.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from quarry.engine.encoding.runtimes.onnx_session import open_graph
from quarry.engine.scoring.simd import simsimd
from quarry.formats.arrays import Int8Array, Int32Array, UInt8Array
from quarry.formats.bundle.protobuf import pack_bytes_field, pack_number_field

__all__ = ["Int8Products", "has_fast_int8"]


_ZERO = 128  # of a row, as uint8
_IR_VERSION, _OPSET = 8, 13
_UINT8, _INT8, _INT32 = 2, 3, 6  # TensorProto.DataType


@cache
def has_fast_int8() -> bool:
    """Return whether this CPU has AVX-512 VNNI: then `Int8Products` is exact, and faster than float32 products."""
    return bool(simsimd().get_capabilities().get("ice", False))


class Int8Products:
    """Multiplies rows with the same vectors; safe to use from several threads, each call runs on its own.

    Args:
        vectors: (n, dim) int8, dim at most 65,536.
    """

    def __init__(self, vectors: Int8Array) -> None:
        self._session = open_graph(_make_graph(np.ascontiguousarray(vectors.T)))

    def write(self, rows: Int8Array, products: Int32Array) -> None:
        """Write the inner products of rows with all vectors to an array.

        The array is the caller's, because memory that the library allocates anew in each call and each thread
        stays with the process.

        Args:
            rows: (b, dim) int8, contiguous, b at least 1.
            products: (b, n) int32, contiguous.
        """
        shifted = np.bitwise_xor(rows.view(np.uint8), np.uint8(_ZERO))
        bound = self._session.io_binding()
        bound.bind_cpu_input("rows", shifted)
        bound.bind_output("products", "cpu", 0, np.int32, products.shape, products.ctypes.data)
        self._session.run_with_iobinding(bound)


def _make_graph(matrix: Int8Array) -> bytes:
    """Return an ONNX model that multiplies (b, dim) uint8 rows with a constant (dim, n) int8 matrix."""
    inputs = ("rows", "matrix", "zero")
    node = b"".join(pack_bytes_field(1, name.encode()) for name in inputs)
    node += pack_bytes_field(2, b"products") + pack_bytes_field(4, b"MatMulInteger")
    dim, n = matrix.shape
    graph = pack_bytes_field(1, node) + pack_bytes_field(2, b"products")
    graph += pack_bytes_field(5, _make_tensor("matrix", matrix, _INT8))
    graph += pack_bytes_field(5, _make_tensor("zero", np.array(_ZERO, np.uint8), _UINT8))
    graph += pack_bytes_field(11, _make_value("rows", _UINT8, dim))
    graph += pack_bytes_field(12, _make_value("products", _INT32, n))
    opset = pack_bytes_field(1, b"") + pack_number_field(2, _OPSET)
    return pack_number_field(1, _IR_VERSION) + pack_bytes_field(7, graph) + pack_bytes_field(8, opset)


def _make_tensor(name: str, array: Int8Array | UInt8Array, kind: int) -> bytes:
    """Return a TensorProto."""
    dims = b"".join(pack_number_field(1, size) for size in array.shape)
    return (
        dims
        + pack_number_field(2, kind)
        + pack_bytes_field(8, name.encode())
        + pack_bytes_field(9, array.tobytes())
    )


def _make_value(name: str, kind: int, width: int) -> bytes:
    """Return the ValueInfoProto of a matrix with any number of rows."""
    dims = (pack_bytes_field(2, b"b"), pack_number_field(1, width))
    shape = b"".join(pack_bytes_field(1, dim) for dim in dims)
    tensor = pack_number_field(1, kind) + pack_bytes_field(2, shape)
    return pack_bytes_field(1, name.encode()) + pack_bytes_field(2, pack_bytes_field(1, tensor))
