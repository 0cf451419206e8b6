import json
import shutil
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from support.indexes.decoded_codes import unpacked
from support.indexes.stored import stored
from support.models.tiny_checkpoint import DIM
from support.training.killed_run import run_and_interrupt
from support.training.tiny_run import N_ARTICLES, short_recipe, write_recipe

torch = pytest.importorskip("torch", reason="the training loop needs torch")
pytest.importorskip("transformers", reason="training needs transformers")
pytest.importorskip("matplotlib", reason="plots need matplotlib")

from safetensors.numpy import load_file, save_file  # noqa: E402

from quarry import engine  # noqa: E402
from quarry.exporters.export import export  # noqa: E402
from quarry.formats.bundle.encoder import EncoderBundle  # noqa: E402
from quarry.formats.errors import CorruptFile, FormatError, InvalidSetting  # noqa: E402
from quarry.training.compression.product_quantizer import (  # noqa: E402
    ProductQuantizer,
    read_checkpoint_quantizer,
    squared_distances,
)
from quarry.training.compression.stored_codes import StoredCodes  # noqa: E402
from quarry.training.data.example_store import ExampleStore  # noqa: E402
from quarry.training.loop.history import History  # noqa: E402
from quarry.training.model.network import load_network  # noqa: E402
from quarry.training.model.tokens import TextBatcher  # noqa: E402
from quarry.training.objectives.passages import Passages  # noqa: E402
from quarry.training.objectives.ranking import RankingSettings  # noqa: E402
from quarry.training.run import train  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_torch_thread")

METHODS = ("repconc", "dpq", "jpq")
RECIPE = short_recipe(
    """\
[compression]
method = "METHOD"
code_bytes = 4
dim = 24
iterations = 20
n_negatives = 5
"""
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recipes")
    write_recipe(folder)
    for method in METHODS:
        (folder / f"{method}.toml").write_text(RECIPE.replace("METHOD", method), "utf-8")
    return folder


@pytest.fixture(scope="module", params=METHODS)
def finished(request: pytest.FixtureRequest, folder: Path, one_torch_thread: None) -> Path:
    """Train without interruption; return the folder of the run."""
    out = folder / request.param
    train(folder / f"{request.param}.toml", out)
    return out


@pytest.fixture(scope="module")
def bundle(finished: Path) -> EncoderBundle:
    texts = ["abc def. ghi", "klm"]
    return export(
        finished / "final", finished.parent / f"{finished.name}-bundle", "fp32", texts=texts, n_recorded=1
    )


def trained_arrays(out: Path) -> dict[str, npt.NDArray[np.float32]]:
    """Return all arrays that a run trained."""
    final = out / "final"
    found = dict(load_file(final / "model.safetensors"))
    if (final / "query").is_dir():
        found |= {f"query.{name}": values for name, values in load_file(final / "query/model.safetensors").items()}
    quantizer = read_checkpoint_quantizer(final)
    assert quantizer is not None
    assert quantizer.rotation is not None
    codebooks = {"encode": quantizer.encode_codebook, "score": quantizer.score_codebook}
    return found | codebooks | {"rotation": quantizer.rotation}


def test_a_run_trains_codebook_and_encoder(finished: Path, folder: Path) -> None:
    records = History(finished / "history.jsonl").records()
    terms = {"contrastive"} | ({"quantization error"} if finished.name != "jpq" else set())
    assert all(set(each["terms"]) == terms for each in records if "terms" in each)  # type: ignore[call-overload]
    start, final = read_checkpoint_quantizer(finished / "start"), read_checkpoint_quantizer(finished / "final")
    assert start is not None
    assert final is not None
    assert start.encode_codebook.shape == final.encode_codebook.shape == (8, 16, 3)
    np.testing.assert_array_equal(start.rotation, final.rotation)
    is_jpq = finished.name == "jpq"
    assert np.array_equal(start.encode_codebook, final.encode_codebook) == is_jpq
    assert (final.score_codebook is final.encode_codebook) != is_jpq
    assert not np.allclose(start.score_codebook, final.score_codebook, atol=1e-4)
    before = load_file(folder / "checkpoint/model.safetensors")
    after = load_file(finished / "final/model.safetensors")
    assert all(np.array_equal(values, before[name]) for name, values in after.items()) == is_jpq
    if is_jpq:
        queries = load_file(finished / "final/query/model.safetensors")
        assert not all(np.array_equal(values, before[name]) for name, values in queries.items())


def test_a_run_that_was_interrupted_ends_with_the_same_weights_and_codebooks(
    finished: Path, folder: Path, tmp_path: Path
) -> None:
    recipe, out = folder / f"{finished.name}.toml", tmp_path / "interrupted"
    run_and_interrupt(recipe, out)
    train(recipe, out)
    found, expected = trained_arrays(out), trained_arrays(finished)
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values)
    names = [sorted(path.name for path in (each / "start").iterdir()) for each in (out, finished)]
    assert names[0] == names[1]


def torch_rows(out: Path, texts: list[str]) -> list[torch.Tensor]:
    """Return the rows of each text from the trained encoder of documents."""
    network = load_network(out / "final")
    network.model.eval()
    tokens = TextBatcher(network.tokenizer_path, "", 32).batch(texts)
    with torch.no_grad():
        rows = Passages(RankingSettings(), (8,)).represent_documents(network.hidden(tokens), tokens, 0)
    return list(rows.values.split(rows.counts))


def test_codes_and_scores_of_an_index_are_those_that_were_trained(
    finished: Path, bundle: EncoderBundle, tmp_path: Path
) -> None:
    store = ExampleStore(finished / "data" / "articles")
    # Training truncates longer texts to its window.
    texts = [" ".join(store.document(number).split()[:8]) for number in range(store.n_documents)]
    assert len(texts) == 4 * (N_ARTICLES - 2)
    documents = [{"id": str(number), "text": text} for number, text in enumerate(texts)]
    engine.build(documents, tmp_path / "index", encoder=bundle.path, centroids="none", progress=False)
    arrays = read_checkpoint_quantizer(finished / "final")
    assert arrays is not None
    quantizer = ProductQuantizer.from_arrays(arrays)
    with stored(tmp_path / "index") as snapshot:
        (segment,) = snapshot.segments
        settings = snapshot.manifest.settings
        assert (settings.representation, settings.representation_settings) == ("pieces", {"tokens_per_piece": 8})
        assert settings.code_bytes == 4
        assert segment.quantizer is not None
        assert segment.quantizer.identity() == arrays.identity()  # nothing was trained
        places = segment.reader.lists.places()
        codes = unpacked(segment.reader.lists.codes()[places])
        offsets = segment.reader.centroids.offsets.tolist()
        rows = torch_rows(finished, texts)
        assert [len(each) for each in rows] == np.diff(offsets).tolist()
        distances = squared_distances(quantizer.rotate(torch.cat(rows)), quantizer.encode_codebook)
        of_index = distances.gather(2, torch.from_numpy(codes.T[:, :, None].astype(np.int64)))[:, :, 0]
        assert (of_index <= distances.amin(2) + 1e-3).all()  # rows are in half precision until encoded
        assert (
            torch.from_numpy(codes) == quantizer.nearest(quantizer.rotate(torch.cat(rows)))
        ).float().mean() > 0.98

    network = load_network(finished / "final" / ("query" if finished.name == "jpq" else ""))
    network.model.eval()
    queries = [store.query(number) for number in range(8)]
    tokens = TextBatcher(network.tokenizer_path, "", 32).batch(queries)
    with torch.no_grad():
        query_rows = Passages(RankingSettings(), (8,)).represent_queries(network.hidden(tokens), tokens)
    scores = (quantizer.rotate(query_rows) @ quantizer.decode(torch.from_numpy(codes.astype(np.int64))).T).numpy()
    expected = np.stack([scores[:, low:high].max(1) for low, high in pairwise(offsets)], 1)
    with engine.Engine.open(tmp_path / "index", encoder=bundle.path) as opened:
        for number, query in enumerate(queries):
            hits = opened.search(query, len(texts), mode="dense")
            assert len(hits) == len(texts)
            for hit in hits:
                assert hit.score == pytest.approx(expected[number, int(hit.id)], abs=1e-3)


def test_an_index_of_codes_grows_with_the_quantizer_of_its_bundle(bundle: EncoderBundle, tmp_path: Path) -> None:
    engine.build(["abc"], tmp_path / "index", encoder=bundle.path, centroids="none", progress=False)
    with engine.Engine.open(tmp_path / "index", encoder=bundle.path, writable=True) as opened:
        for word in ("def ghi", "klm nop"):
            opened.add([word])
            opened.commit()
        opened.merge()
        assert len(opened.search("klm", 3, mode="dense")) == 3
    with stored(tmp_path / "index") as snapshot:
        assert {segment.reader.centroids.kind for segment in snapshot.segments} == {"none"}
        assert len(snapshot.manifest.quantizers) == 1


def test_codes_of_another_size_are_trained_by_the_engine(bundle: EncoderBundle, tmp_path: Path) -> None:
    options = {"centroids": "none", "code_bytes": 8}
    engine.build(["abc", "def"], tmp_path / "index", encoder=bundle.path, progress=False, **options)
    with stored(tmp_path / "index") as snapshot:
        assert snapshot.segments[0].reader.centroids.kind == "int8"  # too few rows to train on
        assert snapshot.manifest.settings.code_bytes == 8


def test_repconc_continues_as_jpq(folder: Path, tmp_path: Path) -> None:
    """The second stage of the paper, JPQ, starts from the codebook of the first, RepCONC."""
    first = folder / "repconc"
    train(folder / "repconc.toml", first)  # nothing to do if it is finished
    recipe = folder / "second.toml"
    text = RECIPE.replace("METHOD", "jpq").replace('"checkpoint"', json.dumps(str(first / "final")), 1)
    recipe.write_text(text.replace("steps = 5", "steps = 1"), "utf-8")
    final = read_checkpoint_quantizer(train(recipe, tmp_path / "second"))
    start = read_checkpoint_quantizer(first / "final")
    assert start is not None
    assert final is not None
    np.testing.assert_array_equal(final.encode_codebook, start.encode_codebook)
    assert not np.array_equal(final.score_codebook, start.score_codebook)
    recipe.write_text(text.replace("code_bytes = 4", "code_bytes = 2"), "utf-8")
    with pytest.raises(InvalidSetting, match="codes of another size"):
        train(recipe, tmp_path / "third")


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        ('method = "jpq"', 'method = "pq"', "unknown method"),
        ("code_bytes = 4", "code_bytes = 0", "out of range"),
        ("code_bytes = 4", "code_bytes = 4\nbits = 6", "out of range"),
        ("dim = 24", "dim = 20", "does not fit"),
        ("tokens_per_piece = [8]", "tokens_per_piece = [4, 8]", "one length"),
        ("[optimizer]", "[negatives]\ncount = 1\n\n[optimizer]", "its own negatives"),
    ],
)
def test_bad_settings_are_named(folder: Path, tmp_path: Path, before: str, after: str, named: str) -> None:
    text = RECIPE.replace("METHOD", "jpq")
    assert before in text
    recipe = folder / f"bad-{tmp_path.name}.toml"
    recipe.write_text(text.replace(before, after), "utf-8")
    with pytest.raises(InvalidSetting, match=named):
        train(recipe, tmp_path / "out")


def test_a_damaged_quantizer_is_named(bundle: EncoderBundle, finished: Path, tmp_path: Path) -> None:
    copy = tmp_path / "bundle"
    shutil.copytree(bundle.path, copy)
    (path,) = copy.glob("*.quant")
    content = bytearray(path.read_bytes())
    content[200] ^= 1
    path.write_bytes(content)
    with pytest.raises(FormatError, match=path.name):
        engine.build(["abc"], tmp_path / "index", encoder=copy, centroids="none", progress=False)
    checkpoint = tmp_path / "checkpoint"
    shutil.copytree(finished / "final", checkpoint)
    next(checkpoint.glob("*.quant")).write_bytes(content)
    with pytest.raises(FormatError, match="quant"):
        export(checkpoint, tmp_path / "out", "fp32")


def test_vectors_of_another_length_are_refused(finished: Path, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    shutil.copytree(finished / "final", checkpoint)
    save_file({"projection.weight": np.ones((8, DIM), np.float32)}, checkpoint / "head.safetensors")
    with pytest.raises(CorruptFile, match="another length; expected 8"):
        export(checkpoint, tmp_path / "out", "fp32")


def test_damaged_codes_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "articles.npz"
    StoredCodes(torch.zeros(3, 2, dtype=torch.uint8), torch.tensor([0, 1, 3])).save(path)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(CorruptFile, match=r"articles\.npz"):
        StoredCodes.load(path, torch.device("cpu"))
