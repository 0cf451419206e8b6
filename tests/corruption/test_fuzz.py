"""The fuzzer finds nothing in thousands of inputs, or millions at the torture level."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.faults.fuzz_seeds import targets
from support.faults.torture import figure
from support.processes import run_python

N_WORKERS = 2


def test_seeds_of_fuzzed_inputs_are_valid(tmp_path):
    for target in targets(tmp_path).values():
        for seed in target.seeds:
            target.use(seed)


def test_hostile_files_that_coverage_leads_to(tmp_path, torture):
    pytest.importorskip("atheris", reason="atheris is not installed", exc_type=ImportError)
    torture.seed, n_runs = 1, figure(20_000, 10_000_000)
    program = Path(__file__).with_name("fuzz.py")
    done = run_python(program, tmp_path, n_runs, N_WORKERS, torture.seed, timeout_s=None)
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    workers = [json.loads((tmp_path / f"runs-{number}").read_text()) for number in range(N_WORKERS)]
    for counts in workers:
        assert all(0 < n_read <= n_target for n_target, n_read in counts.values())
        torture.add(runs=sum(n for n, _ in counts.values()), runs_of_whole_indexes=counts["index"][0])
        torture.add(read_to_the_end=sum(n for _, n in counts.values()))
    torture.add(targets=len(workers[0]), inputs_kept=sum(1 for _ in tmp_path.glob("*/corpus/*")))
    assert torture.counts["runs"] >= n_runs
