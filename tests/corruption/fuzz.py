"""A coverage-guided fuzzer of all that reads files: `python tests/corruption/fuzz.py FOLDER -runs=1000`.

FOLDER holds a small sound index and gets the inputs that were of interest. An input says which file is changed,
and how: another table of contents, or other bytes in its sections. Checksums are right all over, and whatever is
read ends well or with a FormatError; libFuzzer watches over time and memory. It needs atheris.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["formats", "msgpack"]):
    import numpy as np
    import xxhash
    from format_samples import container
    from small_index import DIM, Container, current, records

    from engine.options import OpenOptions, SearchOptions
    from engine.searcher import Searcher
    from formats.directory import Directory, HeldFile
    from formats.errors import FormatError, IndexNotFound
    from formats.packing import pack
    from formats.snapshot import Snapshot, check_files
    from formats.spans import unpack_spans

QUERIES = np.random.default_rng(1).standard_normal((1, DIM)).astype(np.float32)


class Memory(Directory):
    """The files of an index in memory, to be read only."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.path = Path("memory")
        self.files = files

    def names(self) -> list[str]:
        return sorted(self.files)

    def map(self, name: str) -> HeldFile:
        if name not in self.files:
            raise FileNotFoundError(2, "No such file or directory", name)
        return HeldFile(self.path / name, self.files[name])

    def hold(self, name: str, max_bytes: int) -> HeldFile:
        return self.map(name)


class Index:
    """A sound index, of which copies with one changed file are made."""

    def __init__(self, folder: Path) -> None:
        directory = Directory(folder)
        manifest = current(directory)
        self.root = manifest.name
        self.names = [manifest.name, *sorted(records(manifest))]
        self.files = {name: (folder / name).read_bytes() for name in self.names}

    def changed(self, data: bytes) -> dict[str, bytes]:
        """The files that an input stands for."""
        source = atheris.FuzzedDataProvider(data)
        name = self.names[source.ConsumeIntInRange(0, len(self.names) - 1)]
        part = Container.of(self.files[name])
        if source.ConsumeBool() or name == self.root:
            contents: object = source.ConsumeBytes(1 << 20)
        else:
            contents = part.contents
            self._edit(part, source)
        blob = container(contents, bytes(part.data), part.head, file_id=part.file_id)
        packed = contents if isinstance(contents, bytes) else pack(contents)
        return self.files | {name: blob} | self._signed(name, len(blob), packed)

    def _edit(self, part: Container, source: atheris.FuzzedDataProvider) -> None:
        sections = sorted(part.contents["sections"])
        for _ in range(source.ConsumeIntInRange(1, 8)):
            section = part.array(sections[source.ConsumeIntInRange(0, len(sections) - 1)]).reshape(-1)
            if len(section):
                place = source.ConsumeIntInRange(0, len(section.view(np.uint8)) - 1)
                new = np.frombuffer(source.ConsumeBytes(8), np.uint8)
                old = section.view(np.uint8)[place : place + 8]
                old[: len(new)] = new[: len(old)]
        part.sign()

    def _signed(self, name: str, n_bytes: int, contents: bytes) -> dict[str, bytes]:
        """The manifest, with what it says of a file put right."""
        if name == self.root:
            return {}
        root = Container.of(self.files[self.root])
        for record in root.records():
            if record["name"] == name:
                record["n_bytes"], record["digest"] = n_bytes, xxhash.xxh3_128_digest(contents)
        return {self.root: root.blob()}


def read(directory: Directory) -> None:
    """Read something by every way there is, and search."""
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


def main(folder: Path) -> None:
    """Fuzz; the arguments behind the folder are libFuzzer's."""
    index = Index(folder / "index")
    corpus = folder / "corpus"
    corpus.mkdir(exist_ok=True)
    for number, name in enumerate(index.names):
        contents = pack(Container.of(index.files[name]).contents)
        (corpus / f"contents-{number}").write_bytes(contents + bytes([1, number]))  # it is read from behind

    def one_input(data: bytes) -> None:
        with contextlib.suppress(FormatError, IndexNotFound):
            read(Memory(index.changed(data)))

    limits = ["-timeout=5", "-rss_limit_mb=2048", f"-artifact_prefix={folder}/"]
    atheris.Setup([sys.argv[0], str(corpus), *limits, *sys.argv[2:]], one_input)
    with np.errstate(all="ignore"):
        atheris.Fuzz()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
