"""A coverage-guided fuzzer of all file readers: `python tests/corruption/fuzz.py FOLDER RUNS WORKERS SEED`.

FOLDER gets a folder for each target (`fuzz_targets.py`), with the inputs that reached new code. The target "index"
reads and searches a whole index of which one file was changed, which is slow: it gets one in `WHOLE_SHARE` of all
runs, and the others share the rest equally. libFuzzer (atheris, which is needed) chooses inputs by the branches
they reach and limits memory; the time of an input is limited here. A finding ends the process with a message;
otherwise each worker writes a JSON file `runs-<number>` of how often each target ran, and how often without a
FormatError.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["quarry.formats", "msgpack"]):
    import numpy as np
    import numpy.typing as npt
    import xxhash
    from support.faults.fuzz_seeds import Target, targets
    from support.faults.fuzz_targets import joined, parts_of
    from support.faults.memory_directory import MemoryDirectory
    from support.indexes.format_samples import container, pack
    from support.indexes.small_index import DIM, Container, build, current, records

    from quarry.engine.options import OpenOptions, SearchOptions
    from quarry.engine.search.searcher import Searcher
    from quarry.formats.container.directory import Directory
    from quarry.formats.documents.spans import unpack_spans
    from quarry.formats.errors import FormatError
    from quarry.formats.snapshot import Snapshot, check_files

WHOLE_SHARE = 200
MAX_CPU_S = 5.0  # of one input
MAX_PART_BYTES = 2048
LIMITS = ["-max_len=4096", "-rss_limit_mb=2048", "-timeout=7200"]  # wall-clock time would include other processes
QUERIES = np.random.default_rng(1).standard_normal((1, DIM)).astype(np.float32)


class Index:
    """A valid index, of which copies with one changed file are made; see `changed`."""

    def __init__(self, folder: Path) -> None:
        directory = build(folder)
        manifest = current(directory)
        self.root = manifest.name
        self.names = [manifest.name, *sorted(records(manifest))]
        self.files = {name: (folder / name).read_bytes() for name in self.names}

    def seeds(self) -> list[bytes]:
        """Return each file unchanged."""
        contents = (pack(Container.of(self.files[name]).contents) for name in self.names)
        return [bytes([number, 1]) + each for number, each in enumerate(contents)]

    def __call__(self, data: bytes) -> None:
        if len(data) > 2:
            read(MemoryDirectory(Path("memory"), self.changed(data)))

    def changed(self, data: bytes) -> dict[str, bytes]:
        """Return the changed files that an input encodes.

        The first byte selects the file. If the second is odd, or the file is the manifest, the rest is its table
        of contents; otherwise every 12 bytes encode a write and its place in a section.
        """
        name = self.names[data[0] % len(self.names)]
        part = Container.of(self.files[name])
        contents: object = data[2:]
        if not data[1] % 2 and name != self.root:
            contents = part.contents
            for low in range(2, min(len(data), 98), 12):
                self._write(part, data[low : low + 12])
            part.sign()
        blob = container(contents, bytes(part.data), part.head, file_id=part.file_id)
        packed = contents if isinstance(contents, bytes) else pack(contents)
        return self.files | {name: blob} | self._signed(name, len(blob), packed)

    def _write(self, part: Container, edit: bytes) -> None:
        sections = sorted(part.contents["sections"])
        section = part.array(sections[edit[0] % len(sections)]).reshape(-1).view(np.uint8)
        if len(section):
            place = int.from_bytes(edit[1:4], "little") % len(section)
            old = section[place : place + 8]
            new = np.frombuffer(edit[4:], np.uint8)
            old[: len(new)] = new[: len(old)]

    def _signed(self, name: str, n_bytes: int, contents: bytes) -> dict[str, bytes]:
        """Return the manifest with the new size and digest of a file."""
        if name == self.root:
            return {}
        root = Container.of(self.files[self.root])
        for record in root.records():
            if record["name"] == name:
                record["n_bytes"], record["digest"] = n_bytes, xxhash.xxh3_128_digest(contents)
        return {self.root: root.blob()}


def read(directory: Directory) -> None:
    """Read an index in every way, and search it."""
    snapshot = Snapshot(directory)
    check_files(directory, snapshot.manifest)
    for segment in snapshot.segments:
        reader = segment.reader
        for number in (0, reader.n_docs - 1):
            reader.ids.ordinals_of(reader.ids[number])
            unpack_spans(reader.documents[number].spans, reader.path)
        for word in ("bador", "tes", "xyway"):
            reader.postings.postings(word)
        reader.centroids.stored_slice(0, reader.n_rows)
        if reader.lists:
            reader.lists.rows()
            reader.lists.codes()
    Searcher(snapshot, OpenOptions(threads=1)).search(QUERIES, SearchOptions(k=5))


class Mutator:
    """Lets libFuzzer change all of an input, one part of it, or one part of it with its length kept.

    Sections have lengths that must be consistent, so that few changes of the first kind get far.
    """

    def __init__(self, n_parts: int) -> None:
        self._n_parts = n_parts

    def __call__(self, data: bytes, max_bytes: int, seed: int) -> bytes:
        way, number = seed % 3, seed // 3 % self._n_parts
        parts = parts_of(data, self._n_parts)
        before = parts[number]
        if way == 0 or not before:
            return bytes(atheris.Mutate(data, max_bytes))
        new = bytes(atheris.Mutate(before, len(before) if way == 1 else min(2 * len(before), MAX_PART_BYTES)))
        parts[number] = new + before[len(new) :] if way == 1 else new
        return joined(parts)[:max_bytes]


def fuzz(target: Target, folder: Path, n_runs: int, seed: int, counts: npt.NDArray[np.int64]) -> None:
    """Run libFuzzer on a target in this process, which it ends; count all runs and those without an error."""

    def too_slow(_signal: int, _frame: object) -> None:
        raise TimeoutError(f"an input that takes more than {MAX_CPU_S} s")

    def one_input(data: bytes) -> None:
        signal.setitimer(signal.ITIMER_VIRTUAL, MAX_CPU_S)
        counts[0] += 1
        with contextlib.suppress(FormatError):
            target.use(data)
            counts[1] += 1

    signal.signal(signal.SIGVTALRM, too_slow)
    options = [f"-runs={n_runs}", f"-seed={seed}", f"-artifact_prefix={folder}/", *LIMITS]
    atheris.Setup(
        [sys.argv[0], str(folder / "corpus"), *options], one_input, custom_mutator=Mutator(target.n_parts)
    )
    with np.errstate(all="ignore"):
        atheris.Fuzz()


def forked(name: str, target: Target, folder: Path, n_runs: int, seed: int) -> list[int]:
    """Fuzz in a child process, which ends at the first finding; return its counts."""
    log, counts = folder / f"log-{seed}", np.frombuffer(mmap.mmap(-1, 16), np.int64)
    child = os.fork()
    if child == 0:
        with log.open("wb") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        try:
            fuzz(target, folder, n_runs, seed, counts)
        finally:
            os._exit(70)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status:
        sys.exit(f"target {name} ended with {status}\n{log.read_text(errors='replace')[-6000:]}")
    found: list[int] = counts.tolist()
    return found


def shares(names: list[str], n_runs: int) -> Iterator[tuple[str, int]]:
    """Yield how often each target runs."""
    n_whole = max(1, n_runs // WHOLE_SHARE)
    for number, name in enumerate(names):
        rest, n_others = n_runs - n_whole, len(names) - 1
        yield name, n_whole if name == "index" else rest * (number + 1) // n_others - rest * number // n_others


def work(chosen: dict[str, Target], folder: Path, n_runs: int, seed: int) -> dict[str, list[int]]:
    """Fuzz all targets in turn."""
    return {name: forked(name, chosen[name], folder / name, n, seed) for name, n in shares(list(chosen), n_runs)}


def main(folder: Path, n_runs: int, n_workers: int, seed: int) -> None:
    """Fuzz in several processes with different seeds, which share their inputs of interest."""
    (folder / "sound").mkdir()
    (folder / "files").mkdir()
    chosen = {**targets(folder / "files"), "index": Target(whole := Index(folder / "sound"), whole.seeds())}
    for name, target in chosen.items():
        (folder / name / "corpus").mkdir(parents=True)
        for number, content in enumerate(target.seeds):
            target.use(content)
            (folder / name / "corpus" / f"seed-{number}").write_bytes(content)
    workers = []
    for number in range(n_workers):
        child = os.fork()
        if child == 0:
            found = work(chosen, folder, n_runs // n_workers, seed + number)
            (folder / f"runs-{number}").write_text(json.dumps(found))
            os._exit(0)
        workers.append(child)
    failed = [os.waitpid(child, 0)[1] for child in workers]
    if any(failed):
        sys.exit(1)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:5]))
