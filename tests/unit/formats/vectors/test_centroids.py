"""The stored vectors of a segment's documents."""

from __future__ import annotations

import numpy as np
import pytest
from support.indexes.format_samples import reread, write_file

from quarry.formats.container.layout import FileKind
from quarry.formats.container.reader import ContainerReader
from quarry.formats.errors import CorruptFile, InvalidDocument
from quarry.formats.vectors.centroids import (
    CentroidsWriter,
    CentroidTable,
    RoundedRows,
    StoredBatch,
    quantize_int8,
)

DIM = 24


def made(seed=0, counts=(1, 3, 2, 500, 1)):
    generator = np.random.default_rng(seed)
    return [generator.standard_normal((n, DIM)).astype(np.float32) for n in counts]


def table(directory, documents, kind="int8", keep=True):
    writer = CentroidsWriter(directory, DIM, kind)
    for vectors in documents:
        writer.add(vectors)
    container = reread(directory, lambda container: writer.write(container, keep))
    stored = kind if keep else "none"
    read = CentroidTable(container, len(documents), writer.n_rows, DIM, stored, writer.largest_norm)
    writer.close()
    container.refuse_unknown()
    return read, writer


@pytest.mark.parametrize("scale", [1.0, 1e-6, 1e6, 3e37, 1e-30, 1.2e-38, 1e-40, 2.6e-43, 1e-44])
def test_int8_is_within_half_a_step(scale):
    vectors = (np.random.default_rng(0).uniform(-1, 1, (2000, DIM)) * scale).astype(np.float32)
    vectors[0] = 0
    rows, scales = quantize_int8(vectors)
    assert (rows.dtype, scales.dtype, scales.shape) == (np.int8, np.float32, (2000,))
    assert rows.min() >= -127
    assert (scales >= 0).all()
    assert scales[0] == 0
    error = np.abs(rows.astype(np.float64) * scales[:, None] - vectors)
    smallest_normal = float(np.finfo(np.float32).tiny)
    assert (error <= scales[:, None] * 0.5001 + 127 * smallest_normal).all()
    assert (rows * np.sign(vectors) >= 0).all()


def test_the_largest_number_of_a_row_takes_the_whole_range():
    rows, scales = quantize_int8(np.array([[1, -2, 0.5], [-3, 3, 0]], np.float32))
    assert rows.tolist() == [[64, -127, 32], [-127, 127, 0]]
    np.testing.assert_allclose(scales * 127, [2, 3], rtol=1e-6)


def test_int8_rows_come_back(directory):
    documents = made()
    read, writer = table(directory, documents)
    rows, scales = quantize_int8(np.concatenate(documents))
    found_rows, found_scales = read.stored_slice(0, len(rows))
    np.testing.assert_array_equal(found_rows, rows)
    np.testing.assert_array_equal(found_scales, scales)
    some = np.array([0, 3, 4, 250, 506])
    for found, expected in zip(read.stored(some), (rows[some], scales[some]), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert writer.n_rows == read.n_rows == 507


def test_float16_rows_come_back(directory):
    documents = made()
    read, _ = table(directory, documents, "float16")
    halves = np.concatenate(documents).astype(np.float16)
    rows, scales = read.stored_slice(2, 100)
    assert rows.dtype == np.float16
    np.testing.assert_array_equal(rows, halves[2:100])
    np.testing.assert_array_equal(scales, np.ones(98, np.float32))
    rows, scales = read.stored(np.array([1, 506]))
    np.testing.assert_array_equal(rows, halves[[1, 506]])
    assert scales.tolist() == [1, 1]


@pytest.mark.parametrize("kind", ["int8", "float16"])
def test_the_writer_reads_what_will_be_read_back(directory, kind):
    documents = made(counts=(1, 9000, 2, 9000))
    writer = CentroidsWriter(directory, DIM, kind)
    for vectors in documents:
        writer.add(vectors)
    container = reread(directory, lambda container: writer.write(container, keep_rows=True))
    read = CentroidTable(container, 4, writer.n_rows, DIM, kind, writer.largest_norm)
    rows, scales = read.stored_slice(0, writer.n_rows)
    expected = rows.astype(np.float32) * scales[:, None]
    np.testing.assert_array_equal(np.concatenate(list(writer.batches())), expected)
    np.testing.assert_array_equal(writer.vectors(8000, 9500), expected[8000:9500])
    assert np.linalg.norm(expected, axis=1).max() == pytest.approx(writer.largest_norm, rel=1e-5)
    writer.close()
    assert directory.names() == ["sample.seg"]


@pytest.mark.parametrize("counts", [(1, 9000, 2, 20_000, 1), (2,) * 9000, (1,)])
def test_rows_with_their_documents(directory, counts):
    documents = made(counts=counts)
    read, _ = table(directory, documents)
    writer = CentroidsWriter(directory, DIM, "int8")
    for vectors in documents:
        writer.add(vectors)
    owners = np.repeat(np.arange(len(counts)), counts)
    keep = np.arange(len(counts)) % 3 != 1
    nothing = np.zeros(len(counts), bool)
    kept = np.repeat(keep, counts)
    for batches, rows, expected in (
        (writer.owned_batches(), writer.batches(), owners),
        (read.owned_batches(None), read.batches(None), owners),
        (read.owned_batches(keep), read.batches(keep), owners[kept]),
        (read.owned_batches(nothing), read.batches(nothing), owners[:0]),
    ):
        found = list(batches)
        np.testing.assert_array_equal(np.concatenate([docs for _, docs in found]), expected)
        vectors = np.concatenate([vectors for vectors, _ in found])
        np.testing.assert_array_equal(vectors, np.concatenate(list(rows)))
    for each in (None, keep, nothing):
        stored = StoredBatch.join(list(read.stored_batches(each)))
        np.testing.assert_array_equal(stored[:], np.concatenate(list(read.batches(each))))


@pytest.mark.parametrize("kind", ["int8", "float16"])
def test_the_largest_norm_is_of_all_documents(directory, kind):
    writer = CentroidsWriter(directory, DIM, kind)
    for factor in (1, 5, 2):
        writer.add(np.full((2, DIM), factor, np.float32))
    assert writer.largest_norm == pytest.approx(5 * DIM**0.5)


def test_codes_only_keeps_the_offsets(directory):
    read, _ = table(directory, made(), keep=False)
    assert read.kind == "none"
    assert read.offsets.tolist() == [0, 1, 4, 6, 506, 507]


def test_rows_of_documents(directory):
    read, _ = table(directory, made(counts=(2, 1, 3, 1)))
    for docs, rows, bounds in (
        ([0, 1, 2, 3], [0, 1, 2, 3, 4, 5, 6], [0, 2, 3, 6, 7]),
        ([2], [3, 4, 5], [0, 3]),
        ([3, 0, 3], [6, 0, 1, 6], [0, 1, 3, 4]),
        ([], [], [0]),
    ):
        found_rows, found_bounds = read.rows_of(np.array(docs, np.int64))
        assert found_rows.tolist() == rows
        assert found_bounds.tolist() == bounds


@pytest.mark.parametrize(
    ("kind", "vectors"),
    [("float16", np.full((2, DIM), 1e5)), ("int8", np.full((1, DIM), 1e20)), ("float16", np.full((1, DIM), -7e4))],
)
def test_vectors_too_long_to_store_are_refused_and_leave_nothing(directory, kind, vectors):
    writer = CentroidsWriter(directory, DIM, kind)
    good = made()[1]
    writer.add(good)
    with pytest.raises(InvalidDocument, match=f"too large to be stored as {kind}"):
        writer.add(vectors.astype(np.float32))
    writer.add(good)
    assert writer.n_rows == 6
    np.testing.assert_array_equal(writer.vectors(0, 3), writer.vectors(3, 6))
    assert writer.largest_norm < 100


@pytest.mark.parametrize(
    "offsets",
    [
        [0, 1, 2, 4, 6],
        [1, 1, 2, 4, 5],
        [0, 2, 2, 4, 5],
        [0, 3, 2, 4, 5],
        [0, 1, 2, 6, 5],
        [0, 0, 0, 0, 5],
        [0, 1, (1 << 64) - 1, 4, 5],
        [0, 1, 1 << 63, (1 << 64) - 5, 5],  # as signed numbers, the differences are positive
    ],
)
def test_offsets_ascend_to_the_number_of_rows(directory, offsets):
    write_file(directory, {"centroid_offsets": np.array(offsets, np.uint64)})
    container = ContainerReader(directory, "sample.seg", FileKind.SEGMENT)
    with pytest.raises(CorruptFile, match=r"sample\.seg: centroid offsets"):
        CentroidTable(container, 4, 5, DIM, "none", 1.0).offsets.sum()


def test_sections_agree_with_one_another(directory):
    vectors, scales = np.zeros((5, DIM), np.int8), np.zeros(5, np.float32)
    offsets = np.arange(6, dtype=np.uint64)
    for number, sections in enumerate(
        (
            {"centroid_offsets": offsets, "centroids": vectors},
            {"centroid_offsets": offsets, "centroid_scales": scales},
            {"centroid_offsets": offsets, "centroids": vectors[1:], "centroid_scales": scales},
            {"centroid_offsets": offsets, "centroids": vectors[:, 1:], "centroid_scales": scales},
            {"centroid_offsets": offsets, "centroids": vectors, "centroid_scales": scales[1:]},
            {"centroid_offsets": offsets, "centroids": vectors.view(np.uint8), "centroid_scales": scales},
            {"centroid_offsets": offsets[1:], "centroids": vectors, "centroid_scales": scales},
        )
    ):
        write_file(directory, sections, name=f"{number}.seg")
        with pytest.raises(CorruptFile, match=f"{number}.seg"):
            CentroidTable(ContainerReader(directory, f"{number}.seg", FileKind.SEGMENT), 5, 5, DIM, "int8", 1.0)


@pytest.mark.parametrize("kind", ["int8", "float16"])
def test_stored_batches_are_those_of_float32(directory, kind):
    writer = CentroidsWriter(directory, DIM, kind)
    for vectors in made(counts=(1, 8190, 9000, 3)):
        writer.add(vectors)
    stored, decoded = list(writer.stored_batches()), list(writer.batches())
    writer.close()
    assert [len(each) for each in stored] == [len(each) for each in decoded] == [8192, 8192, 810]
    for each, expected in zip(stored, decoded, strict=True):
        places = np.array([0, 5, 809, 5])
        np.testing.assert_array_equal(each[places], expected[places])
        assert each[places].dtype == np.float32
        assert each[places[:0]].shape == (0, DIM)


@pytest.mark.parametrize("kind", ["int8", "float16"])
def test_rounded_rows_are_selected_with_their_norms(directory, kind):
    vectors = np.concatenate(made(counts=(5, 20)))
    rows = RoundedRows.of(vectors, kind)
    scales = 1 if rows.scales is None else rows.scales[:, None]
    stored_rows = rows.values.astype(np.float32) * scales
    np.testing.assert_allclose(rows.squares, (stored_rows**2).sum(axis=1), rtol=1e-6)
    assert np.abs(stored_rows - vectors).max() <= np.abs(vectors).max() / 250
    places = np.array([24, 3, 3, 0])
    selected = rows.select(places)
    assert len(selected) == 4
    writers = [CentroidsWriter(directory, DIM, kind) for _ in range(2)]
    writers[0].add_many(selected, np.array([3, 1]))
    writers[1].add_many(RoundedRows.of(vectors[places], kind), np.array([3, 1]))
    assert writers[0].largest_norm == writers[1].largest_norm
    np.testing.assert_array_equal(*(writer.vectors(0, 4) for writer in writers))
    for writer in writers:
        writer.close()
