"""`Engine.reencode` killed at chosen moments keeps the old index, and the next call encodes the rest."""

from __future__ import annotations

import signal

import pytest
from support.indexes.changes import stray_files
from support.indexes.word_encoder import WordEncoder
from support.processes import run_python

from quarry import engine
from quarry.engine import Engine
from quarry.engine.thresholds import Thresholds

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL on this system")

N = 20
SCRIPT = """
import os, signal, sys
from support.indexes.word_encoder import WordEncoder
from quarry.engine import Engine
from quarry.engine.building import reencoding
from quarry.engine.indexer.index_writer import IndexWriter
from quarry.engine.thresholds import Thresholds
from quarry.formats.manifest import Manifest

path, moment = sys.argv[1:]
n_encoded = 0

class Encoder(WordEncoder):
    def windows(self, text):
        global n_encoded
        n_encoded += 1
        if moment == "document" and n_encoded == 8:
            kill()
        return super().windows(text)

    def encode_query(self, text):
        return WordEncoder(dim=8).encode_query(text)

def kill():
    os.kill(os.getpid(), signal.SIGKILL)

def strike(owner, name):
    setattr(owner, name, lambda *_, **__: kill())

reencoding_s = 0 if moment == "document" else 60
thresholds = Thresholds(calibration_queries=64, list_rows=16, training_rows=16, reencoding_s=reencoding_s)
with Engine.open(path, writable=True, encoder=WordEncoder(dim=16), threads=1, thresholds=thresholds) as index:
    if moment == "before":
        rewrite = IndexWriter.rewrite
        def rewritten(*arguments):
            strike(Manifest, "commit")
            return rewrite(*arguments)
        IndexWriter.rewrite = rewritten
    if moment == "cleaning":
        strike(reencoding.shutil, "rmtree")
    index.reencode(Encoder(dim=8))
print(n_encoded)
"""


def run(path, moment):
    return run_python("-c", SCRIPT, path, moment)


@pytest.mark.parametrize(("moment", "n_left"), [("document", N - 7), ("before", 0), ("cleaning", 0)])
def test_killed(tmp_path, moment, n_left):
    path = tmp_path / "index"
    docs = [{"id": str(number), "text": f"text{number} common", "metadata": {"n": number}} for number in range(N)]
    engine.build(docs, path, encoder=WordEncoder(dim=16), threads=1)
    killed = run(path, moment)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    is_new = moment == "cleaning"
    with Engine.open(path, encoder=WordEncoder(dim=8 if is_new else 16)) as index:
        assert index.search("text3 common", k=1)[0].id == "3"
        assert index.verify().n_documents == N
    again = run(path, "never")
    if is_new:  # nothing is left to do, and the script opens the index with the previous encoder
        assert again.returncode == 1
        assert "EncoderMismatch" in again.stderr
        Engine.open(path, writable=True).close()
    else:
        assert again.stdout.split() == [str(n_left)], again.stderr
    assert not stray_files(path)
    thresholds = Thresholds(calibration_queries=64, list_rows=16, training_rows=16)
    with Engine.open(path, encoder=WordEncoder(dim=8), thresholds=thresholds) as index:
        assert [doc.metadata["n"] for doc in index.get([str(number) for number in range(N)])] == list(range(N))
        assert index.verify().n_documents == N
        assert index.search("text3 common", k=1)[0].id == "3"
