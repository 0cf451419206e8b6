"""Calibrated settings are the same with the kernels of every CPU, up to rounding.

OpenBLAS and FAISS choose kernels by the CPU; environment variables select others here, each in a new process. With
the same vectors and quantizer, numbers of lists and rows may differ by one or one in a thousand, and recalls by a
thousandth. A quantizer trained with other kernels differs, because rounding changes the course of k-means: its
numbers may differ by a tenth, and recalls by a hundredth.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from quarry.engine.quantization.calibration import calibrated
from quarry.engine.quantization.training import measured, train_quantizer
from quarry.formats.vectors.quantizer import Quantizer

DIM, N_DOCS = 48, 1500

CPUINFO = Path("/proc/cpuinfo")
FLAGS = set(CPUINFO.read_text(encoding="utf-8").split()) if CPUINFO.exists() else set()


def kernels() -> list[dict[str, str]]:
    """Return variables that select kernels for this CPU, which OpenBLAS does not check.

    Earlier versions of FAISS read FAISS_OPT_LEVEL, later ones FAISS_SIMD_LEVEL.
    """
    if platform.machine() == "aarch64":
        return [{"OPENBLAS_CORETYPE": "ARMV8"}, {"OPENBLAS_CORETYPE": "NEOVERSEN1"}]
    found = []
    if platform.machine() == "x86_64":
        found.append({"OPENBLAS_CORETYPE": "Prescott", "FAISS_OPT_LEVEL": "generic", "FAISS_SIMD_LEVEL": "NONE"})
        if {"avx2", "fma"} <= FLAGS:
            found.append({"OPENBLAS_CORETYPE": "Haswell", "FAISS_OPT_LEVEL": "avx2", "FAISS_SIMD_LEVEL": "AVX2"})
        if {"avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512cd"} <= FLAGS:
            found.append(
                {"OPENBLAS_CORETYPE": "SkylakeX", "FAISS_OPT_LEVEL": "avx512", "FAISS_SIMD_LEVEL": "AVX512"}
            )
    return found


def vectors_of(generator, n):
    """Return unit vectors around topics in a subspace, made from integers: the same on every machine."""
    basis = np.random.default_rng(99).integers(-8, 9, (12, DIM))
    centres = np.random.default_rng(98).integers(-9, 10, (60, 12))
    within = centres[generator.integers(0, 60, n)] + generator.integers(-6, 7, (n, 12))
    vectors = (within @ basis + generator.integers(-20, 21, (n, DIM))).astype(np.float64)
    return (vectors / np.sqrt((vectors**2).sum(axis=1, keepdims=True))).astype(np.float32)


def numbers(made: Quantizer) -> dict[str, object]:
    """Return all calibrated numbers of a quantizer."""
    return {
        "rows": made.candidate_rows,
        "curve": [] if made.probe_recall is None else made.probe_recall.tolist(),
        "settings": [[each.k, each.nprobe, each.rows] for each in made.search_settings],
    }


def with_measurements(made: Quantizer) -> list[dict[str, object]]:
    """Calibrate by rows, then by queries: for distinct vectors, for pairs of equal ones, for identical ones."""
    generator = np.random.default_rng(0)
    owners = np.repeat(np.arange(N_DOCS), generator.integers(1, 4, N_DOCS))
    usual, query_vectors = vectors_of(generator, len(owners)), vectors_of(generator, 60)
    twins = usual.copy()
    twins[1::2] = twins[:-1:2]
    found = []
    for rows in (usual, twins, np.tile(usual[:1], (2000, 1))):
        plain = replace(made, probe_recall=None, candidate_rows=None, search_settings=())
        by_rows = measured(plain, rows, len(rows), 1)
        found += [numbers(by_rows), numbers(calibrated(by_rows, [(rows, owners[: len(rows)])], query_vectors, 1))]
    return found


def trained() -> Quantizer:
    return train_quantizer(vectors_of(np.random.default_rng(0), 3000), 64, 6, 0, 1)


def store(path: Path, made: Quantizer) -> None:
    parts = {"coarse": made.coarse, "book": made.encode_codebook}
    np.savez(path, **parts, **({} if made.rotation is None else {"rotation": made.rotation}))


def stored(path: Path) -> Quantizer:
    with np.load(path) as parts:
        return Quantizer(parts["coarse"], parts["book"], parts["book"], parts.get("rotation"), False)


def main(path: str) -> None:
    """Print the numbers of a stored quantizer, and of one trained in this process."""
    json.dump([with_measurements(stored(Path(path))), with_measurements(trained())], sys.stdout)


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """Train a quantizer in this process; return its file and its calibrated numbers."""
    path, made = tmp_path_factory.mktemp("quantizer") / "made.npz", trained()
    store(path, made)
    return path, with_measurements(made)


@pytest.mark.parametrize("cpu", kernels(), ids=lambda cpu: cpu["OPENBLAS_CORETYPE"])
def test_measurements_are_the_same(here, cpu):
    path, expected = here
    command = [sys.executable, __file__, str(path)]
    variables = {**os.environ, **cpu, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
    of_the_same, of_its_own = json.loads(done.stdout)
    for ours, theirs, others in zip(expected, of_the_same, of_its_own, strict=True):
        assert_alike(ours, theirs, 0.001, 0.001)
        assert_alike(ours, others, 0.1, 0.01)


def assert_alike(ours, theirs, share, recall):
    """Compare numbers up to a factor of `share` or a difference of one, and recalls up to `recall`."""
    assert (ours["rows"] is None) == (theirs["rows"] is None)
    assert [each[0] for each in ours["settings"]] == [each[0] for each in theirs["settings"]]
    assert ours["rows"] is None or ours["rows"] == pytest.approx(theirs["rows"], rel=share, abs=1)
    np.testing.assert_allclose(ours["curve"], theirs["curve"], atol=recall)
    for one, other in zip(ours["settings"], theirs["settings"], strict=True):
        assert one[1:] == pytest.approx(other[1:], rel=share, abs=1)


if __name__ == "__main__":
    main(sys.argv[1])
