"""`formats/SPEC.md` is sufficient to read an index: these tests follow it without code of the package."""

from __future__ import annotations

import struct
from itertools import pairwise

import msgpack
import numpy as np
import pytest
import zstandard
from support.indexes.format_samples import ODD_IDS, document, manifest, quantizer, segment_record, write_file
from support.indexes.word_encoder import WordEncoder
from xxhash import xxh3_64_intdigest, xxh3_128_digest, xxh3_128_hexdigest

from quarry.engine import Engine, build
from quarry.formats.container.layout import FileKind
from quarry.formats.documents.spans import pack_spans
from quarry.formats.snapshot import Snapshot
from quarry.formats.vectors.quantizer import write_quantizer


class File:
    """A container, parsed by sections 1 and 3."""

    def __init__(self, path, kind):
        blob = path.read_bytes()
        head, tail = struct.unpack("<9sBHHI16sIII10sQ", blob[:64]), struct.unpack("<QQ16sQ16s8s", blob[-64:])
        assert head[:5] == (b"\x89QRRY\r\n\x1a\n", kind, 1, 2, 0x0A0B0C0D)
        assert (head[7], head[9:]) == (0, (bytes(10), xxh3_64_intdigest(blob[:56])))
        offset, length, self.digest, self.n_bytes, self.id, end = tail
        table = blob[offset : offset + length]
        assert (offset + length, self.n_bytes, self.id, end) == (len(blob) - 64, len(blob), head[5], b"QRRYEND\n")
        assert (offset % 64, self.digest) == (0, xxh3_128_digest(table))
        contents = msgpack.unpackb(table)
        self.fields, entries = contents["fields"], contents["sections"]
        required = {1: {"metric": 1, "passages": 4}, 2: {"n_passages": 1}}.get(kind, {})
        fields = self.fields["settings"] if kind == 1 else self.fields
        assert head[6] == sum(bit for name, bit in required.items() if name in fields)
        optional = [name in self.fields for name in ("candidate_rows", "search_settings")] if kind == 3 else [0, 0]
        assert head[8] == optional[0] + 2 * optional[1]
        self.sections = {name: self._section(blob, entry) for name, entry in entries.items()}
        self._check_gaps(
            blob, sorted(entries.values(), key=lambda entry: (entry["offset"], len(entry["chunks"]))), offset
        )

    def _section(self, blob, entry):
        array = np.frombuffer(blob, entry["dtype"], int(np.prod(entry["shape"])), entry["offset"])
        data = array.tobytes()
        mebibytes = [data[low : low + (1 << 20)] for low in range(0, len(data), 1 << 20)]
        assert entry["chunks"] == b"".join(map(xxh3_128_digest, mebibytes))
        return array.reshape(entry["shape"])

    def _check_gaps(self, blob, entries, contents):
        end = 64
        for entry in entries:
            assert end <= entry["offset"] < end + 4096
            assert not any(blob[end : entry["offset"]])
            end = entry["offset"] + int(np.prod(entry["shape"])) * np.dtype(entry["dtype"]).itemsize
        assert contents == -(-end // 64) * 64
        assert not any(blob[end:contents])


class Index:
    """An index, read by sections 2 and 4 to 7."""

    def __init__(self, folder):
        self.folder = folder
        root = File(max(folder.glob("MANIFEST-*")), 1)
        self.fields = root.fields
        assert root.fields["generation"] == int(max(folder.glob("MANIFEST-*")).name.removeprefix("MANIFEST-"))
        self.quantizers = {record["name"]: self.file(record, 3) for record in root.fields["quantizers"]}

    def file(self, record, kind):
        file = File(self.folder / record["name"], kind)
        assert (file.n_bytes, file.id, file.digest) == (record["n_bytes"], record["file_id"], record["digest"])
        return file

    def documents(self):
        """Yield the live documents: id, title, text, metadata, spans, rows."""
        for entry in self.fields["segments"]:
            segment, dead = self.file(entry["file"], 2), set()
            if entry["tombstones"]:
                dead = self.deleted(self.file(entry["tombstones"], 4), segment)
            assert len(dead) == entry["n_deleted"]
            for d in sorted(set(range(entry["n_docs"])) - dead):
                yield self.document(segment, d, self.quantizers.get(entry["quantizer"]))

    def deleted(self, tombstones, segment):
        assert tombstones.fields["segment_id"] == segment.id
        bits = tombstones.sections["deleted"]
        return {d for d in range(segment.fields["n_docs"]) if bits[d // 8] >> d % 8 & 1}

    def document(self, segment, d, quantizer):
        sections = segment.sections
        doc_id = stretch(sections["ids"], sections["id_offsets"], d)
        hashes, wanted = sections["id_hashes"], xxh3_64_intdigest(doc_id)
        places = [place for place in range(len(hashes)) if hashes[place] == wanted]
        assert d in [sections["id_ordinals"][place] for place in places]
        run = [d >= start for start in sections["dictionary_ordinals"]].count(True) - 1
        dictionary = stretch(sections["document_dictionaries"], sections["dictionary_offsets"], run)
        trained = zstandard.ZstdCompressionDict(dictionary) if dictionary else None
        frame = stretch(sections["documents"], sections["document_offsets"], d)
        title, text, metadata, spans = msgpack.unpackb(zstandard.ZstdDecompressor(trained).decompress(frame))
        bounds = sections["passage_offsets"][d : d + 2] if "passage_offsets" in sections else [d, d + 1]
        rows = range(*sections["centroid_offsets"][bounds].tolist())
        vectors = [self.row(segment, row, quantizer) for row in rows]
        return doc_id.decode(), title, text, metadata, spans_of(spans), np.array(vectors)

    def postings(self):
        """Yield for each segment its terms, with their passages and frequencies."""
        for entry in self.fields["segments"]:
            segment = self.file(entry["file"], 2)
            n_passages = segment.fields.get("n_passages", entry["n_docs"])
            sections, record, found = segment.sections, 0, {}
            for block in range(len(sections["term_keys"])):
                assert sections["posting_offsets"][block] == record
                terms = list(terms_of(stretch(sections["terms"], sections["term_offsets"], block)))
                assert int(sections["term_keys"][block]).to_bytes(8, "big") == terms[0][0][:8].ljust(8, b"\0")
                for term, n, n_bytes in terms:
                    bits = sections["postings"][record : record + n_bytes].tobytes()
                    found[term.decode()], record = postings_of(bits, n, n_passages), record + n_bytes
            assert record == len(sections["postings"])
            yield found, sections["doc_lengths"].tolist()

    def metadata(self):
        """Yield for each segment path -> documents -> values in the columns."""
        for entry in self.fields["segments"]:
            sections = self.file(entry["file"], 2).sections
            directory = msgpack.unpackb(sections["metadata_directory"].tobytes())
            assert list(directory) == ["beyond", "columns"]
            data, n_docs = sections["metadata"].tobytes(), entry["n_docs"]
            yield {path: column_of(data, n_docs, each) for path, each in directory["columns"].items()}

    def row(self, segment, row, quantizer):
        sections = segment.sections
        if segment.fields["centroids"] == "int8":
            return sections["centroids"][row].astype(np.float32) * sections["centroid_scales"][row]
        if segment.fields["centroids"] == "float16":
            return sections["centroids"][row].astype(np.float32)
        (place,) = np.flatnonzero(sections["list_rows"] == row).tolist()
        list_number = int(np.flatnonzero(sections["list_offsets"] <= place)[-1])
        return decoded(quantizer, sections["codes"][place].tolist(), list_number)


def stretch(data, offsets, number):
    return data[int(offsets[number]) : int(offsets[number + 1])].tobytes()


def varint(packed, at):
    value = shift = 0
    while True:
        value, shift, at = value | (packed[at] & 127) << shift, shift + 7, at + 1
        if packed[at - 1] < 128:
            return value, at


def terms_of(block):
    """Yield term, number of documents, and length of its record."""
    term, at = b"", 0
    while at < len(block):
        n_shared, n_more = block[at : at + 2]
        term, at = term[:n_shared] + block[at + 2 : at + 2 + n_more], at + 2 + n_more
        n, at = varint(block, at)
        n_bytes, at = varint(block, at)
        yield term, n, n_bytes


def postings_of(record, n, n_docs):
    width = (n_docs // n).bit_length() - 1
    bits = [byte >> place & 1 for byte in record for place in range(8)]
    low = [sum(bits[width * i + place] << place for place in range(width)) for i in range(n)]
    zeros, runs = 0, []
    for bit in bits[width * n :]:
        zeros += not bit
        if bit:
            runs.append(zeros)
            zeros = 0
    assert (len(runs), zeros < 8) == (2 * n, True)
    high = np.cumsum(runs[:n]).tolist()
    return [(high[i] << width | low[i], runs[n + i] + 1) for i in range(n)]


def column_of(data, n_docs, column):
    counts, at = column["counts"], column["offset"]
    n_values, n_texts = sum(counts), counts[6] + counts[7]
    code = "u1" if n_values < 1 << 8 else "u2" if n_values < 1 << 16 else "u4"

    def part(dtype, n, gap=True):
        nonlocal at
        array = np.frombuffer(data, f"<{dtype}", n, at)
        at += array.nbytes + (-array.nbytes % 8 if gap else 0)
        return array.tolist()

    assert at % 8 == 0
    values = [{}, None, False, True]
    values = [value for value, n in zip(values, counts[:4], strict=True) for _ in range(n)]
    values += part("i8", counts[4], gap=False) + part("f8", counts[5])
    offsets, texts = part("u8", n_texts + 1), bytes(part("u1", column["text_bytes"]))
    values += [texts[low:high].decode() for low, high in pairwise(offsets)]
    found = {
        doc: [values[number - 1]] for doc, number in enumerate(part(code, n_docs * column["dense"])) if number
    }
    docs = part("u4", column["n_pairs"])
    codes = part(code, column["n_pairs"])
    assert codes == sorted(codes)
    for doc, number in zip(docs, codes, strict=True):
        found.setdefault(doc, []).append(values[number - 1])
    return found


def spans_of(packed):
    numbers, value, shift = [], 0, 0
    for byte in packed:
        value, shift = value | (byte & 127) << shift, shift + 7
        if byte < 128:
            numbers.append(value)
            value = shift = 0
    numbers, rows = iter(numbers), []
    for n_spans in numbers:
        end, spans = 0, []
        for _ in range(n_spans):
            start = end + next(numbers)
            end = start + next(numbers)
            spans.append((start, end))
        rows.append(spans)
    return rows


def decoded(quantizer, code, list_number):
    sections, fields = quantizer.sections, quantizer.fields
    numbers = code if fields["nbits"] == 8 else [half for byte in code for half in (byte & 15, byte >> 4)]
    codebook = sections.get("score_codebook", sections["encode_codebook"])
    vector = np.concatenate([codebook[m][number] for m, number in enumerate(numbers)])
    if fields["by_residual"]:
        vector = vector + sections["coarse"][list_number]
    return vector @ sections["rotation"] if "rotation" in sections else vector


def compute_identity(file):
    names = ["coarse", "encode_codebook", "score_codebook", "rotation", "probe_recall"]
    if "score_codebook" not in file.sections:
        names[2] = "encode_codebook"
    arrays = [file.sections[name] for name in names if name in file.sections]
    shapes = [tuple(map(int, array.shape)) for array in arrays]
    text = f"({shapes}, {file.fields['by_residual']}, 'inner_product')"
    return xxh3_128_hexdigest(text.encode() + b"".join(array.tobytes() for array in arrays))


KINDS = [
    {"kind": "int8"},
    {"kind": "float16"},
    {"kind": "int8", "made_with": quantizer(dim=8, n_sub=4, measured=True)},
    {"kind": "int8", "made_with": quantizer(dim=8, n_sub=2, nbits=8, apart=True), "keep": False},
    {"kind": "int8", "made_with": quantizer(dim=8, n_sub=4, input_dim=8, by_residual=True), "keep": False},
]


@pytest.mark.parametrize("options", KINDS)
@pytest.mark.parametrize("ids", [ODD_IDS, [f"document {n}" for n in range(150)]])
def test_a_reader_that_follows_the_specification(directory, options, ids):
    """A reader that follows the specification gets the same documents and vectors as the package."""
    made_with = options.get("made_with")
    record = write_quantizer(directory, made_with) if made_with else None
    name = record.name if record else ""
    segments = [
        segment_record(directory, part, [2, 3, len(part) - 1], quantizer_name=name, **options)
        for part in (ids, ids[: len(ids) // 2])
    ]
    manifest(segments, [record] if record else []).commit(directory)
    read = list(Index(directory.path).documents())
    assert [(fields[0], fields[2]) for fields in read] == [
        (part[d], document(d).text)
        for part in (ids, ids[: len(ids) // 2])
        for d in range(len(part))
        if d not in (2, 3, len(part) - 1)
    ]
    assert all(metadata["n"] == int(title.split()[1]) for _, title, _, metadata, _, _ in read)
    assert all(spans == [[(0, 4)]] for *_, spans, _ in read)
    for part, (postings, lengths) in zip(
        (ids, ids[: len(ids) // 2]), Index(directory.path).postings(), strict=True
    ):
        assert lengths == [3] * len(part)
        assert postings["of"] == [(d, 1) for d in range(len(part))]
        assert {term: docs for term, docs in postings.items() if term.isdigit()} == {
            str(d): [(d, 1)] for d in range(len(part))
        }
    if options.get("keep", True):
        snapshot = Snapshot(directory)
        tables = [(segment.reader.centroids, ~segment.deleted) for segment in snapshot.segments]
        rows = [
            (values * scales[:, None])[np.repeat(live, np.diff(table.offsets))]
            for table, live in tables
            for values, scales in [table.stored_slice(0, table.n_rows)]
        ]
        np.testing.assert_array_equal(np.concatenate([fields[-1] for fields in read]), np.concatenate(rows))


ODD_METADATA = {
    "number": 7,
    "float": 7.0,
    "half": -0.5,
    "texts": ["b", "a", "x" * 128, "y" * 70 + "é" * 30, "y" * 63 + "é" * 40],
    "all": [None, True, False, 1, [2.5, ["z"]], {}],
    "inside": {"deep": {"empty": []}, "list": [{"k": 1}, {"k": 2}]},
    "inside.deep": "by a dot",
}


def test_the_columns_of_metadata(directory):
    ids = [f"document {n}" for n in range(300)]
    manifest([segment_record(directory, ids, metadata=lambda n: ODD_METADATA if n == 5 else {"n": n})]).commit(
        directory
    )
    (columns,) = Index(directory.path).metadata()
    assert columns.pop("n") == {n: [n] for n in range(300) if n != 5}
    assert {path: found.pop(5) for path, found in columns.items()} == {
        "number": [7],
        "float": [7],
        "half": [-0.5],
        "texts": ["a", "b", "x" * 128, "y" * 63, "y" * 64],
        "all": [{}, None, False, True, 1, 2.5, "z"],
        "inside": [{}],
        "inside.deep": [{}, "by a dot"],
        "inside.deep.empty": [{}],
        "inside.list": [{}],
        "inside.list.k": [1, 2],
    }
    assert not any(columns.values())


def test_shards(directory):
    """Section 14: each document is only in the shard that the hash of its id selects."""
    path = directory.path / "sharded"
    ids = [each for each in ODD_IDS if each] + [str(number) for number in range(40)]
    build([{"id": doc_id, "text": "word"} for doc_id in ids], path, encoder=WordEncoder(), shards=3)
    (root,) = path.glob("SHARDS-*")
    shard_set = File(root, 6)
    folders = [folder["name"] for folder in shard_set.fields["folders"]]
    assert root.name == "SHARDS-00000000000000000001"
    assert folders == [f"shard-{shard_set.id.hex()}-{number:04d}" for number in range(3)]
    expected = {"generation": 1, "parent_id": bytes(16), "routing": "xxh3-64"}
    assert {name: value for name, value in shard_set.fields.items() if name != "folders"} == expected
    assert not shard_set.sections
    for number, folder in enumerate(folders):
        found = [doc_id for doc_id, *_ in Index(path / folder).documents()]
        assert found == [doc_id for doc_id in ids if xxh3_64_intdigest(doc_id.encode()) % 3 == number]


def test_passages(directory):
    """Section 5: vectors and terms are those of passages, which cover the text of each document."""
    texts = ["one two", " ".join(f"w{n}" for n in range(10)), "three"]
    docs = [{"id": str(number), "title": "T", "text": text} for number, text in enumerate(texts)]
    path = directory.path / "passages"
    build(docs, path, encoder=WordEncoder(), passage_words=4)
    index = Index(path)
    segment = index.file(index.fields["segments"][0]["file"], 2)
    assert index.fields["settings"]["passages"] == {"max_words": 4, "overlap": 0}
    assert (segment.fields["n_docs"], segment.fields["n_passages"]) == (3, 5)
    assert segment.sections["passage_offsets"].tolist() == [0, 1, 4, 5]
    own = [f"T\n{texts[1]}"[start:end] for start, end in segment.sections["passage_extents"].tolist()]
    assert own == ["", "T\nw0 w1 w2 w3", "w4 w5 w6", "w7 w8 w9", ""]
    ((postings, lengths),) = index.postings()
    assert lengths == [3, 5, 4, 4, 2]  # the title in front of each
    assert (postings["w5"], postings["t"]) == ([(2, 1)], [(n, 1) for n in range(5)])
    read = list(index.documents())
    assert [text for _, _, text, *_ in read] == texts
    assert all(len(spans) == len(rows) for *_, spans, rows in read)


@pytest.mark.parametrize("metric", ["ip", "cosine", "l2"])
def test_the_metric(directory, metric):
    """Section 4: scores of documents with given vectors follow the metric."""
    vectors = np.random.default_rng(0).standard_normal((50, 5)).astype(np.float32) * 3
    docs = [{"id": str(number), "vectors": vector} for number, vector in enumerate(vectors)]
    build(docs, directory.path, dim=5, metric=metric, centroids="float16")
    index = Index(directory.path)
    settings, encoder = index.fields["settings"], index.fields["encoder"]
    assert (settings["representation"], encoder["identity"]) == ("given", "given vectors")
    known = settings.get("metric", {"name": "cosine" if encoder["normalise"] else "ip", "dim": settings["dim"]})
    assert (known["name"], known["dim"]) == (metric, 5)
    rows = np.concatenate([document[5] for document in index.documents()]).astype(np.float64)
    query = vectors[0].astype(np.float64) + 1
    if metric == "l2":
        assert not rows[:, 5:].any()
        scores = -((rows[:, :5] - query) ** 2).sum(axis=1)
    elif metric == "cosine":
        scores = rows @ (query / np.linalg.norm(query))
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-3)
    else:
        scores = rows @ query
    with Engine.open(directory.path) as opened:
        hits = opened.search(vector=query, k=50)
    np.testing.assert_allclose([hit.score for hit in hits], [scores[int(hit.id)] for hit in hits], atol=1e-3)


@pytest.mark.parametrize("made", [made["made_with"] for made in KINDS if "made_with" in made])
def test_the_identity_of_a_quantizer(directory, made):
    record = write_quantizer(directory, made)
    file = File(directory.path / record.name, 3)
    assert compute_identity(file) == made.identity() == record.name.removesuffix(".quant") == file.id.hex()


def test_decoded_codes_are_near_what_was_coded(directory):
    """Section 6: half-byte order, residuals and rotation decode to the expected vector."""
    made = quantizer(dim=4, n_sub=2, input_dim=4, by_residual=True, apart=True)
    record = write_quantizer(directory, made)
    expected = np.concatenate([made.score_codebook[0, 5], made.score_codebook[1, 12]]) + made.coarse[3]
    found = decoded(File(directory.path / record.name, 3), [12 << 4 | 5], 3)
    np.testing.assert_allclose(found, made.rotation.T @ expected, rtol=1e-5)


def test_spans_and_long_sections(directory):
    rows = [[(0, 300), (301, 100_000)], [], [(5, 5)]]
    assert spans_of(pack_spans(rows)) == rows
    long = np.random.default_rng(0).integers(0, 256, 3 << 20, np.uint8)
    write_file(directory, {"long": long, "short": long[:5]}, {"n": 1}, FileKind.SEGMENT)
    assert File(directory.path / "sample.seg", 2).fields == {"n": 1}
