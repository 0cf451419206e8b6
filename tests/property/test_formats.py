"""Everything that can be written is read back unchanged."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from pathlib import Path

import msgpack
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from support.indexes.format_samples import manifest, reread, write_file

from quarry.formats.container.directory import Directory
from quarry.formats.container.layout import FileKind, FileRecord
from quarry.formats.container.packing import pack, unpack, unpack_bounded
from quarry.formats.container.reader import ContainerReader
from quarry.formats.container.sections import DTYPES
from quarry.formats.container.spool import Spool
from quarry.formats.documents.ids import DocIds, DocIdsWriter
from quarry.formats.documents.spans import pack_spans, unpack_spans
from quarry.formats.documents.store import DocStore, DocStoreWriter, StoredDocument
from quarry.formats.errors import CorruptFile
from quarry.formats.manifest import EncoderRecord, Manifest, SegmentRecord
from quarry.formats.segment import SegmentReader, SegmentWriter
from quarry.formats.tombstones import read_tombstones, write_tombstones
from quarry.formats.vectors.centroids import CentroidsWriter, CentroidTable, quantize_int8
from quarry.formats.vectors.inverted_lists import InvertedLists, InvertedListsWriter
from quarry.formats.vectors.quantizer import Quantizer, SearchSetting, read_quantizer, write_quantizer

settings.register_profile("files", deadline=None, max_examples=60)
files = settings(settings.get_profile("files"))
PATH = Path("some.seg")

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(1 << 63), (1 << 63) - 1), st.floats(allow_nan=False), texts
)
json_values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4)
)
packable = st.dictionaries(texts, json_values | st.binary(max_size=20) | st.integers(0, (1 << 64) - 1), max_size=5)
finite = st.floats(-(2.0**60), 2.0**60, width=32)
seeds = st.integers(0, 2**32 - 1)


@contextmanager
def index():
    """Yield a new folder for the files of one example."""
    with tempfile.TemporaryDirectory() as folder:
        yield Directory(Path(folder))


def normal(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def count(value):
    """Count the values within a value, including itself."""
    if isinstance(value, dict):
        return 1 + sum(1 + count(item) for item in value.values())
    return 1 + sum(map(count, value)) if isinstance(value, list) else 1


@given(packable)
def test_packed_maps(value):
    packed = pack(value)
    assert unpack(packed, PATH, "it").remaining() == value
    assert pack(dict(reversed(value.items()))) == packed


@given(packable)
def test_the_bound_on_values_is_exact(value):
    packed, n_values = msgpack.packb(value), count(value)
    assert unpack_bounded(packed, n_values) == value
    if len(packed) > n_values - 1 > 0:
        with pytest.raises(ValueError, match="more than"):
            unpack_bounded(packed, n_values - 1)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_map_or_an_error(data):
    for unpacked in (data, b"\x81\xa1a" + data):
        try:
            value = unpack(unpacked, PATH, "it")
        except CorruptFile:
            continue
        assert value.remaining() == msgpack.unpackb(unpacked)


@given(st.lists(st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 100_000)), max_size=5), max_size=20))
def test_spans(steps):
    centroids = []
    for gaps in steps:
        ends = np.cumsum([number for gap in gaps for number in gap]).tolist()
        centroids.append(list(zip(ends[::2], ends[1::2], strict=True)))
    assert unpack_spans(pack_spans(centroids), PATH) == centroids


@given(st.binary(max_size=40))
def test_any_bytes_are_spans_or_an_error(packed):
    try:
        centroids = unpack_spans(packed, PATH)
    except CorruptFile:
        return
    assert all(low <= high for spans in centroids for low, high in spans)
    assert unpack_spans(pack_spans(centroids), PATH) == centroids


@files
@given(
    st.dictionaries(
        st.from_regex(r"[a-z_]{1,20}", fullmatch=True),
        st.sampled_from(DTYPES).flatmap(
            lambda dtype: arrays.arrays(dtype, arrays.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=9))
        ),
        max_size=6,
    )
)
def test_sections(sections):
    with index() as directory:
        record = write_file(directory, sections)
        container = ContainerReader(directory, record.name, FileKind.SEGMENT, record)
        for name, array in sections.items():
            read = container.section(name, array.dtype, array.shape).array()
            assert read.tobytes() == array.tobytes()
        container.refuse_unknown()
        assert container.find_damage() == []


@files
@given(st.lists(st.integers(0, 3_000_000), max_size=6), st.data())
def test_spools(lengths, data):
    """Any range of a spool can be read, whether it is in memory, in the file or in both."""
    generator = np.random.default_rng(0)
    with index() as directory:
        spool, whole = Spool(directory), b""
        for length in lengths:
            piece = generator.bytes(length)
            spool.write(piece)
            whole += piece
            low = data.draw(st.integers(0, len(whole)))
            high = data.draw(st.integers(low, len(whole)))
            assert spool.read(low, high - low) == whole[low:high]
        assert b"".join(spool.chunks()) == whole
        spool.close()


@files
@given(st.lists(texts, min_size=1, max_size=40))
def test_ids(ids):
    with index() as directory:
        writer = DocIdsWriter(directory)
        for doc_id in ids:
            writer.add(doc_id)
        stored = DocIds(reread(directory, writer.write), len(ids))
        assert [stored[n] for n in range(len(ids))] == ids
        for doc_id in {*ids, "another"}:
            everywhere = [n for n, other in enumerate(ids) if other == doc_id]
            assert stored.ordinals_of(doc_id) == writer.ordinals_of(doc_id) == everywhere
        last = {doc_id: n for n, doc_id in enumerate(ids)}
        assert set(writer.find_superseded().tolist()) == set(range(len(ids))) - set(last.values())


documents = st.builds(
    StoredDocument, texts, texts, st.dictionaries(texts, json_values, max_size=3), st.binary(max_size=20)
)


@files
@given(st.lists(documents, min_size=1, max_size=90))
def test_documents(written):
    with index() as directory:
        writer = DocStoreWriter(directory)
        for document in written:
            writer.add(document)
        stored = DocStore(reread(directory, writer.write), len(written))
        assert [stored[n] for n in range(len(written))] == written


@given(arrays.arrays(np.float32, arrays.array_shapes(min_dims=2, max_dims=2, max_side=12), elements=finite))
def test_int8_is_within_half_a_step(vectors):
    rows, scales = quantize_int8(vectors)
    error = np.abs(rows.astype(np.float64) * scales[:, None] - vectors)
    assert rows.min() >= -127
    assert (error <= scales[:, None] * 0.5001 + 127 * float(np.finfo(np.float32).tiny)).all()


@files
@given(st.lists(st.integers(1, 9), min_size=1, max_size=30), st.sampled_from(["int8", "float16"]), seeds)
def test_centroids(counts, kind, seed):
    with index() as directory:
        writer = CentroidsWriter(directory, 6, kind)
        batches = [normal(seed + n, n_rows, 6) for n, n_rows in enumerate(counts)]
        for vectors in batches:
            writer.add(vectors)
        container = reread(directory, lambda container: writer.write(container, keep_rows=True))
        table = CentroidTable(container, len(counts), sum(counts), 6, kind, writer.largest_norm)
        docs = np.random.default_rng(seed).permutation(len(counts))
        rows, bounds = table.rows_of(docs)
        values, scales = table.stored(rows)
        read = values.astype(np.float32) * scales[:, None]
        for n, doc in enumerate(docs.tolist()):
            np.testing.assert_allclose(read[bounds[n] : bounds[n + 1]], batches[doc], atol=0.02)
        np.testing.assert_array_equal(read, np.concatenate(list(writer.batches()))[rows])


@files
@given(st.lists(st.integers(0, 9), min_size=1, max_size=300), st.integers(1, 5), seeds)
def test_inverted_lists(numbers, code_bytes, seed):
    list_numbers = np.array(numbers, np.int64)
    codes = np.random.default_rng(seed).integers(0, 256, (len(numbers), code_bytes), np.uint8)
    with index() as directory:
        writer = InvertedListsWriter(directory, 10, code_bytes)
        for part in np.array_split(np.arange(len(numbers)), 3):
            writer.add(list_numbers[part], codes[part])
        lists = InvertedLists(reread(directory, writer.write), 10, len(numbers), code_bytes)
        rows = lists.rows()
        np.testing.assert_array_equal(rows, np.argsort(list_numbers, kind="stable"))
        np.testing.assert_array_equal(lists.codes(), codes[rows])
        np.testing.assert_array_equal(np.diff(lists.offsets), np.bincount(list_numbers, minlength=10))


@files
@given(
    st.integers(1, 9),
    st.sampled_from([(2, 4), (4, 4), (1, 8), (3, 8)]),
    st.integers(1, 4),
    st.booleans(),
    st.booleans(),
    st.none() | st.integers(1, 9),
    st.booleans(),
    seeds,
)
def test_quantizers(nlist, layout, dsub, apart, by_residual, input_dim, measured, seed):
    n_sub, nbits = layout
    encode = normal(seed, n_sub, 1 << nbits, dsub)
    score = normal(seed + 1, n_sub, 1 << nbits, dsub) if apart else encode
    rotation = None if input_dim is None else normal(seed + 2, n_sub * dsub, input_dim)
    recall = np.linspace(0.5, 1, nlist, dtype=np.float32) if measured else None
    coarse, rows = normal(seed + 3, nlist, n_sub * dsub), seed % 1000 + 1 if measured else None
    hits = sorted({1 + seed % 7, 10, 100 + seed % 13})
    settings = tuple(SearchSetting(k, 1 + (seed + k) % nlist, 1 + seed % 999) for k in hits) if measured else ()
    made = Quantizer(coarse, encode, score, rotation, by_residual, recall, None, rows, settings)
    with index() as directory:
        read = read_quantizer(directory, write_quantizer(directory, made))
        assert read.identity() == made.identity()
        np.testing.assert_array_equal(read.coarse, made.coarse)
        np.testing.assert_array_equal(read.encode_codebook, encode)
        np.testing.assert_array_equal(read.score_codebook, score)
        np.testing.assert_array_equal(read.rotation, rotation)
        np.testing.assert_array_equal(read.probe_recall, recall)
        assert (read.candidate_rows, read.search_settings) == (rows, settings)
        assert (read.by_residual, read.nbits) == (by_residual, nbits)


@files
@given(st.lists(st.booleans(), min_size=1, max_size=200), st.binary(min_size=16, max_size=16))
def test_tombstones(flags, segment_id):
    with index() as directory:
        record = write_tombstones(directory, segment_id, np.array(flags))
        assert read_tombstones(directory, record, segment_id, len(flags)).tolist() == flags


digests = st.binary(min_size=16, max_size=16)
names = st.from_regex(r"[a-f0-9]{32}\.(seg|del|quant)", fullmatch=True)
file_records = st.builds(FileRecord, names, st.integers(128, 1 << 48), digests, digests)
segment_records = st.integers(1, 1 << 32).flatmap(
    lambda n_docs: st.builds(
        SegmentRecord,
        file=file_records,
        tombstones=st.none() | file_records,
        quantizer=st.just(""),
        n_docs=st.just(n_docs),
        n_deleted=st.integers(0, n_docs),
    )
)
encoders = st.builds(EncoderRecord, name=texts, identity=texts, normalize=st.booleans())


@files
@given(
    st.lists(segment_records, max_size=4),
    st.lists(file_records, max_size=2),
    encoders,
    st.integers(1, 10**15),
    st.none() | st.floats(1e-300, 1e6),
    st.dictionaries(texts, st.integers(1, 1 << 16), max_size=3),
)
def test_manifests(segments, quantizers, encoder, generation, beta, numbers):
    made = manifest(segments, quantizers, generation, beta=beta, representation_settings=numbers)
    made = Manifest(**(vars(made) | {"encoder": encoder}))
    assume(len(made.file_names()) == 1 + len(quantizers) + sum(2 if one.tombstones else 1 for one in segments))
    with index() as directory:
        made.commit(directory)
        assert Manifest.load(directory, generation) == made


@files
@given(st.lists(st.tuples(texts, documents, st.integers(1, 4)), min_size=1, max_size=70), seeds)
def test_whole_segments(contents, seed):
    with index() as directory:
        writer = SegmentWriter(directory, 5, "float16")
        vectors = [normal(seed + n, n_rows, 5) for n, (_, _, n_rows) in enumerate(contents)]
        for (doc_id, document, _), rows in zip(contents, vectors, strict=True):
            writer.add(doc_id, document, rows)
        reader = SegmentReader(directory, writer.finish(None, 0, 0, keep_centroids=True), 5)
        writer.close()
        assert [reader.ids[n] for n in range(reader.n_docs)] == [doc_id for doc_id, _, _ in contents]
        assert [reader.documents[n] for n in range(reader.n_docs)] == [document for _, document, _ in contents]
        rows, _ = reader.centroids.stored_slice(0, reader.n_rows)
        np.testing.assert_array_equal(rows, np.concatenate(vectors).astype(np.float16))
        reader.close()
