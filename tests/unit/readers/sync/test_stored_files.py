"""The files of an index, read from columns, are compared with the metadata of every document."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from support.indexes.word_encoder import WordEncoder

from quarry import engine
from quarry.formats.container.directory import Directory
from quarry.formats.snapshot import Snapshot
from quarry.readers.sync.stored_files import StoredFile, stored_files

FIELDS = {"path": "a.txt", "hash": "00ff", "size": 3, "modified": 10**18, "read": 2 * 10**18}
OTHERS = [
    None,
    "a.txt",
    [FIELDS],
    ["a.txt", FIELDS],
    FIELDS,
    {},
    {**FIELDS, "path": 1},
    {**FIELDS, "path": ["a.txt", "b.txt"]},
    {**FIELDS, "path": ["p" * 200, "b.txt"]},
    {**FIELDS, "size": "3"},
    {**FIELDS, "size": 3.5},
    {**FIELDS, "hash": None},
    {name: value for name, value in FIELDS.items() if name != "read"},
]


def expected_files(snapshot: Snapshot) -> dict[tuple[str, str], StoredFile]:
    """Read the files from the metadata of every document."""
    found: dict[tuple[str, str], StoredFile] = {}
    for segment in snapshot.segments:
        for ordinal in range(segment.reader.n_docs):
            if segment.deleted is not None and segment.deleted[ordinal]:
                continue
            file = segment.reader.documents[ordinal].metadata.get("file")
            if not isinstance(file, Mapping) or set(FIELDS) - set(file):
                continue
            values = [file[name] for name in FIELDS]
            if [type(value) for value in values] == [str, str, int, int, int]:
                path, hash_, size, modified, read = values
                folder = str(file.get("folder", ""))
                new = StoredFile(path, folder, size, modified, read, hash_)
                found.setdefault((path, folder), new).ids.append(segment.reader.ids[ordinal])
    return found


def random_document(rng: np.random.Generator, number: int) -> dict[str, object]:
    document: dict[str, object] = {"id": str(number), "text": f"text {number}"}
    kind = rng.integers(4)
    if kind == 0:
        document["metadata"] = {"file": OTHERS[rng.integers(len(OTHERS))], "year": 2000 + number}
    elif kind < 3:
        name = f"{'long/' * 40 if kind == 2 else ''}{rng.integers(300)} é.txt"
        document["id"] = rng.choice([name, f"{name}#{rng.integers(3)}", str(number)])
        file = {**FIELDS, "path": name, "size": number, "pages": 3}
        folder = ("", "/files", "/other", "/long" * 40)[rng.integers(4)]
        file |= {"folder": folder} if folder else {}
        document["metadata"] = {"file": file, "lang": "en"}
    return document


@pytest.mark.parametrize("seed", range(4))
def test_files_are_those_of_the_metadata_of_all_documents(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    documents = [random_document(rng, number) for number in range(300)]
    encoder = WordEncoder(dim=8)
    engine.build(documents[:200], tmp_path, encoder=encoder, threads=1)
    with engine.Engine.open(tmp_path, writable=True, encoder=encoder, threads=1) as opened:
        opened.add([*documents[200:], random_document(rng, 7)])
        opened.delete([documents[number]["id"] for number in rng.choice(300, 40, replace=False)])
        opened.commit()
    with closing(Snapshot(Directory(tmp_path))) as snapshot:
        expected = expected_files(snapshot)
        assert len(expected) > 30
        assert {(file.path, file.folder): file for file in stored_files([snapshot])} == expected


def test_files_are_found_beside_more_paths_than_columns(tmp_path: Path) -> None:
    many = {f"key {number}": number for number in range(5000)}
    documents = [
        {"id": "0", "text": "a", "metadata": {"file": FIELDS}},
        {"id": "1", "text": "b", "metadata": many},
        {"id": "2", "text": "c", "metadata": {**many, "file": {**FIELDS, "path": "c.txt"}}},
    ]
    for name, order in (("first", documents), ("last", documents[::-1])):
        engine.build(order, tmp_path / name, encoder=WordEncoder(dim=8), threads=1)
        with closing(Snapshot(Directory(tmp_path / name))) as snapshot:
            assert snapshot.segments[0].reader.metadata.beyond is not None
            found = {(file.path, file.folder): file for file in stored_files([snapshot])}
            assert found == expected_files(snapshot)
            assert {file.path: file.ids for file in found.values()} == {"a.txt": ["0"], "c.txt": ["2"]}
