"""Opens, searches and merges an index of which each value was changed in turn, with correct checksums.

Run as a program, so that a crash of native code ends another process than that of the tests: the last line names
the change that was tried last. Errors of the package are answers; any other is printed.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
from support.indexes.small_index import Container, changed_copy, signed

import quarry
from quarry.engine.thresholds import Thresholds
from quarry.formats.container.directory import Directory
from quarry.formats.container.layout import FileRecord
from quarry.formats.vectors.quantizer import read_quantizer, write_quantizer

DIM, N_DOCS = 8, 200
THRESHOLDS = Thresholds(list_rows=64, training_rows=64, nlist=4)
VALUES = [None, 0, 3, 255, 1 << 40, 0.5, float("nan"), "", "none", "l2", {}, ...]
NUMBERS = [0, -1, 1e-40, 1e38, np.nan]
VECTORS = np.random.default_rng(0).standard_normal((N_DOCS, DIM)).astype(np.float32)


def documents(prefix: str, vectors: np.ndarray) -> list[dict]:
    """Return documents with these vectors."""
    return [{"id": f"{prefix}{n}", "text": "moon", "vectors": row} for n, row in enumerate(vectors)]


def paths(value: object, steps: tuple = ()) -> list[tuple]:
    """Return the path of every value in nested maps and lists."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [steps, *(path for key, item in items for path in paths(item, (*steps, key)))]


def changed_fields(files: dict[str, bytes], name: str):
    """Yield the files with each field of one of them changed, and what was changed."""
    for steps in paths(Container.of(files[name]).contents["fields"], ("fields",))[1:]:
        for value in VALUES:

            def change(part: Container, steps: tuple = steps, value: object = value) -> None:
                part.contents = changed_copy(part.contents, steps, value)

            yield signed(files, name, change), f"{name} {steps} {value!r}"


def changed_numbers(files: dict[str, bytes], name: str):
    """Yield the files with one number, and all numbers, of each section of floating point numbers changed."""
    for section, entry in Container.of(files[name]).contents["sections"].items():
        for where in (slice(1), slice(None)) if entry["dtype"].startswith("float") else ():
            for value in NUMBERS:

                def change(
                    part: Container, section: str = section, where: slice = where, value: float = value
                ) -> None:
                    part.array(section).reshape(-1)[where] = value
                    part.sign()

                yield signed(files, name, change), f"{name} {section} {where} {value}"


def changed_arrays(files: dict[str, bytes], name: str, folder: Path):
    """Yield the files with the numbers of a quantizer changed, in a file that is named by its new content."""
    directory = Directory(folder)
    top = max(each for each in files if each.startswith("MANIFEST"))
    records = Container.of(files[top]).contents["fields"]["quantizers"]
    quantizer = read_quantizer(directory, FileRecord(**records[0]))
    for part in ("coarse", "encode_codebook", "score_codebook", "probe_recall"):
        for where in (slice(1), slice(None)):
            for value in NUMBERS:
                array = getattr(quantizer, part).copy()
                array.reshape(-1)[where] = value
                record = write_quantizer(directory, replace(quantizer, **{part: array}))
                root = Container.of(files[top])
                root.contents = renamed(root.contents, name, record)
                yield (
                    {**files, record.name: (folder / record.name).read_bytes(), top: root.blob()},
                    f"quantizer {part} {where} {value}",
                )


def renamed(value: object, name: str, record):
    """Return nested maps and lists with the record of another file in place of that of `name`."""
    if isinstance(value, dict):
        found = {key: renamed(item, name, record) for key, item in value.items()}
        return record.to_fields() if value.get("name") == name else found
    if isinstance(value, list):
        return [renamed(item, name, record) for item in value]
    return record.name if value == name else value


def use(folder: Path) -> None:
    """Search, verify, change and merge an index; its own errors are ignored."""
    for writes in (False, True):
        try:
            with quarry.Engine.open(folder, writable=writes, thresholds=THRESHOLDS) as index:
                hits = index.search(vector=VECTORS[0])
                assert isinstance(hits, quarry.Hits)
                scores = [hit.score for hit in hits]
                assert np.isfinite(scores).all()
                index.verify()
                if writes:
                    index.add(documents("new", VECTORS[:1]))
                    index.commit()
                    index.merge(retrain=True)
        except quarry.QuarryError:
            pass


def main(folder: Path, metric: str, centroids: str, part: int, n_parts: int) -> int:
    """Try every change of a share; return whether there was an untyped error."""
    built, tried = folder / "built", folder / "tried"
    quarry.build(
        documents("", VECTORS),
        built,
        dim=DIM,
        metric=metric,
        centroids=centroids,
        progress=False,
        thresholds=THRESHOLDS,
    )
    with quarry.Engine.open(built, writable=True, thresholds=THRESHOLDS) as index:
        index.delete(["3"])
        index.commit()
    files = {each.name: each.read_bytes() for each in built.iterdir() if each.is_file()}
    cases = [each for name in files if not name.endswith("lock") for each in changed_fields(files, name)]
    cases += [each for name in files if name.endswith("seg") for each in changed_numbers(files, name)]
    cases += [each for name in files if name.endswith("quant") for each in changed_arrays(files, name, built)]
    failed = 0
    for changed, what in cases[part::n_parts]:
        sys.stdout.write(f"{what}\n")
        sys.stdout.flush()
        tried.mkdir(exist_ok=True)
        for each in tried.iterdir():
            each.unlink()
        for name, data in changed.items():
            (tried / name).write_bytes(data)
        try:
            use(tried)
        except BaseException as error:  # counted, so that all are found in one run
            sys.stdout.write(f"FAILED {what}: {error!r}\n")
            failed += 1
    return failed


if __name__ == "__main__":
    sys.exit(min(1, main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))))
