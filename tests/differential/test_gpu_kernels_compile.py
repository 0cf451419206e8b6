"""The Triton kernels compile for Hopper and fit into its shared memory; no GPU is needed."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    find_spec("triton") is None or find_spec("torch") is None, reason="needs triton and torch"
)

MOST_SHARED_BYTES = 227 << 10  # the limit of one program
MOST_SPILLED_BYTES = 64  # of a thread's 1020 bytes of registers

SCRIPT = """
import re
import subprocess
import sys
import tempfile
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from quarry.engine.gpu import kernels

def compiled(kernel, types, constants, warps, stages):
    names = [name for name in kernel.arg_names if name not in constants]
    signature = dict(zip(names, types.split(), strict=True)) | dict.fromkeys(constants, "constexpr")
    signature = {name: signature[name] for name in kernel.arg_names}
    aligned = [n for n, name in enumerate(kernel.arg_names) if signature[name][0] == "*" or name == "dim"]
    source = ASTSource(
        fn=kernel, signature=signature, constexprs=constants,
        attrs={(n,): [["tt.divisibility", 16]] for n in aligned if kernel.arg_names[n] != "docs"},
    )
    target = GPUTarget("cuda", 90, 32)
    found = triton.compile(source, target=target, options={"num_warps": warps, "num_stages": stages})
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(found.asm["cubin"])
        file.flush()
        command = [triton.knobs.nvidia.cuobjdump.path, "--dump-resource-usage", file.name]
        usage = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    print(kernel.__name__, found.metadata.shared, re.search(r"STACK:(\\d+)", usage)[1])

DOCUMENTS = "{0} {1} *i64 *i32 i32 *u8 *fp16 *fp32 *fp32 i32 i32 i32"
for rows, scales in (("*i8", "*fp32"), ("*fp16", "*fp16")):
    for softmax in (False, True):
        stored = {"SCALED": rows == "*i8", "SOFTMAX": softmax}
        # The most queries with 4 and with 8 warps: fewer need fewer registers and less shared memory.
        for n_queries, slots in ((1, 4), (300, 4)) if softmax else ((30, 4), (300, 4), (300, 1)):
            tile = kernels.choose_tiling(n_queries, slots, softmax=softmax)
            shape = {"DOCS": tile.rows // slots, "SLOTS": slots, "QUERIES": tile.queries, "WIDTH": tile.width}
            compiled(
                kernels._document_kernel, DOCUMENTS.format(rows, scales),
                {**stored, "MASKED": True, **shape}, tile.warps, tile.stages,
            )
        compiled(
            kernels._pair_kernel, f"{rows} {scales} *i64 *i64 *fp64 *fp64 *fp32 i32 i32 i32 fp32",
            {**stored, "DOCS": 4, "SLOTS": 4, "WIDTH": 64}, 4, 3,
        )
for halves in (False, True):
    for codes in ("*u8", "*i32"):
        compiled(
            kernels._list_kernel, f"{codes} *i32 *i64 *fp32 *i64 *fp32 *fp32 i32 i32 i32 i32",
            {"WORDS": codes == "*i32", "HALVES": halves, "ROWS": 128}, 4, 3,
        )
"""


def test_the_kernels_compile_for_hopper(tmp_path):
    root = Path(__file__).resolve().parents[2]
    variables = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    variables |= {
        "TRITON_CACHE_DIR": str(tmp_path),
        "PYTHONPATH": os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")]),
    }
    (tmp_path / "compile.py").write_text(SCRIPT, "utf-8")
    done = subprocess.run(
        [sys.executable, str(tmp_path / "compile.py")], env=variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = [line.split() for line in done.stdout.splitlines()]
    kernels = [name for name, *_ in found]
    assert {name: kernels.count(name) for name in kernels} == {
        "_document_kernel": 10,
        "_pair_kernel": 4,
        "_list_kernel": 4,
    }
    assert all(int(n_bytes) <= MOST_SHARED_BYTES for _, n_bytes, _ in found)
    assert all(int(n_bytes) <= MOST_SPILLED_BYTES for *_, n_bytes in found)
