from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.training.tiny_run import tiny_encoder, words

torch = pytest.importorskip("torch", reason="objectives need torch")
pytest.importorskip("transformers", reason="training needs transformers")

from quarry.engine import Cls, FirstM, KMeans, Mean, Pieces  # noqa: E402
from quarry.engine.encoding.opening import open_encoder  # noqa: E402
from quarry.engine.representation.base import Representation  # noqa: E402
from quarry.exporters.export import export  # noqa: E402
from quarry.formats.errors import InvalidDocument, InvalidSetting  # noqa: E402
from quarry.training.model.checkpoint_files import EncoderFiles, write_checkpoint  # noqa: E402
from quarry.training.model.network import EncoderNetwork, load_network  # noqa: E402
from quarry.training.model.tokens import TextBatcher, TextTokens, TokenBatch  # noqa: E402
from quarry.training.model.torch_encoder import TorchEncoder  # noqa: E402
from quarry.training.objectives.first_m import FirstVectors, SingleVector  # noqa: E402
from quarry.training.objectives.objective import Use  # noqa: E402
from quarry.training.objectives.passages import Passages  # noqa: E402
from quarry.training.objectives.pseudo_queries import PseudoQueries  # noqa: E402
from quarry.training.objectives.ranking import RankingObjective, RankingSettings  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_torch_thread")

WINDOW = 40
CASES: dict[str, tuple[Callable[[RankingSettings], RankingObjective], Representation, str]] = {
    "passages": (lambda settings: Passages(settings, (5,)), Pieces(5), "mean"),
    "mean": (SingleVector, Mean(), "mean"),
    "cls": (SingleVector, Cls(), "cls"),
    "first_m": (lambda settings: FirstVectors(settings, 4), FirstM(4), "cls"),
    "de_bert": (lambda settings: FirstVectors(settings, 1), Cls(), "cls"),
    "pseudo_queries": (lambda settings: PseudoQueries(settings, 3), KMeans(3), "cls"),
}
TEXTS = [
    "a. bc. def. gh, ij. klm nop.",
    "a",
    "ab cd ef gh ij kl mn op. ab cd",
    words(np.random.default_rng(5), 7),
    "Ab! cd? Ef gh.",
]


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> EncoderNetwork:
    found = load_network(tiny_encoder(tmp_path_factory.mktemp("tiny") / "checkpoint"))
    found.model.eval()
    return found


def files(use: Use) -> EncoderFiles:
    return EncoderFiles(
        use.pooling,
        use.normalize,
        use.beta,
        use.representation,
        WINDOW,
        "",
        "",
        "# Tiny\n",
        use.representation_settings,
    )


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_rows_are_the_engines_centroids(network: EncoderNetwork, case: str, normalize: bool) -> None:
    make, representation, pooling = CASES[case]
    objective = make(RankingSettings(pooling, normalize))
    assert objective.use().representation == representation.name
    tokens = TextBatcher(network.tokenizer_path, "", WINDOW).batch(TEXTS)
    encoder = TorchEncoder(network, files(objective.use()), "0")
    with torch.no_grad():
        hidden = network.hidden(tokens)
        rows = objective.represent_documents(hidden, tokens, 0)
        queries = objective.represent_queries(hidden, tokens)
    expected = [representation.represent(text, encoder.windows(text), normalize).values for text in TEXTS]
    assert rows.counts == tuple(map(len, expected))
    np.testing.assert_allclose(rows.values.numpy(), np.concatenate(expected), rtol=1e-4, atol=1e-5)
    query_vectors = np.stack([encoder.encode_query(text) for text in TEXTS])
    np.testing.assert_allclose(queries.numpy(), query_vectors, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_an_exported_checkpoint_gives_the_vectors_that_were_trained(
    network: EncoderNetwork, case: str, tmp_path: Path
) -> None:
    make, representation, pooling = CASES[case]
    objective = make(RankingSettings(pooling))
    write_checkpoint(network, files(objective.use()), tmp_path / "checkpoint")
    bundle = export(tmp_path / "checkpoint", tmp_path / "bundle", "fp32", texts=TEXTS, n_recorded=1)
    assert bundle.settings.trained_representation == representation.name
    encoder = open_encoder(bundle.path)
    tokens = TextBatcher(network.tokenizer_path, "", WINDOW).batch(TEXTS)
    with torch.no_grad():
        rows = objective.represent_documents(network.hidden(tokens), tokens, 0)
        queries = objective.represent_queries(network.hidden(tokens), tokens)
    found = [representation.represent(text, encoder.windows(text), True).values for text in TEXTS]
    np.testing.assert_allclose(np.concatenate(found), rows.values.numpy(), rtol=1e-3, atol=1e-4)
    query_vectors = np.stack([encoder.encode_query(text) for text in TEXTS])
    np.testing.assert_allclose(query_vectors, queries.numpy(), rtol=1e-3, atol=1e-4)


def invented_batch(lengths: list[int]) -> TokenBatch:
    """Return texts of one-letter words between two special tokens."""
    texts = []
    for length in lengths:
        places = np.arange(length, dtype=np.int64) * 2
        text = "".join("." if number % 3 == 2 else "A" for number in range(length))
        texts.append(TextTokens(" ".join(text), places, places, places + 1))
    longest = max(lengths) + 2
    mask = torch.tensor([[1] * (length + 2) + [0] * (longest - length - 2) for length in lengths])
    return TokenBatch(torch.zeros_like(mask), mask, tuple(texts), 1)


@pytest.mark.parametrize("case", CASES)
def test_gradients_of_rows_are_finite_differences(case: str) -> None:
    make, _, pooling = CASES[case]
    objective = make(RankingSettings(pooling))
    tokens = invented_batch([7, 1, 12])
    torch.manual_seed(2)
    hidden = torch.randn(3, 14, 3, dtype=torch.float64, requires_grad=True)

    def rows(states: torch.Tensor) -> torch.Tensor:
        return objective.represent_documents(states, tokens, 0).values

    def queries(states: torch.Tensor) -> torch.Tensor:
        return objective.represent_queries(states, tokens)

    assert torch.autograd.gradcheck(rows, (hidden,))
    assert torch.autograd.gradcheck(queries, (hidden,))
    rows(hidden).sum().backward()
    assert hidden.grad is not None
    assert not hidden.grad[tokens.mask == 0].any()


def test_the_length_of_passages_is_drawn_for_each_step() -> None:
    objective = Passages(RankingSettings(), (4, 8, 16), seed=1)
    drawn = [objective.tokens_per_piece(step) for step in range(60)]
    assert set(drawn) == {4, 8, 16}
    assert drawn == [objective.tokens_per_piece(step) for step in range(60)]


def test_texts_are_cut_behind_the_limit_and_parts_lose_padding(network: EncoderNetwork) -> None:
    batcher = TextBatcher(network.tokenizer_path, "", 8)
    batch = batcher.batch(["abc", "abc def ghi jkl", "a"])
    assert batch.ids.shape == (3, 8)
    assert [len(each.ids) for each in batch.texts] == [3, 6, 1]
    part = batch.part(2, 3)
    assert part.ids.shape == (1, 3)
    assert torch.equal(part.ids[0], batch.ids[2, :3])
    with pytest.raises(InvalidDocument, match="without tokens"):
        batcher.batch(["a", " "])
    with pytest.raises(InvalidSetting, match="no texts"):
        batcher.batch([])


@pytest.mark.parametrize(
    "make",
    [
        lambda: Passages(RankingSettings(), ()),
        lambda: Passages(RankingSettings(), (0,)),
        lambda: FirstVectors(RankingSettings(), 0),
        lambda: PseudoQueries(RankingSettings(), 5000),
    ],
)
def test_settings_out_of_range_are_refused(make: Callable[[], object]) -> None:
    with pytest.raises(InvalidSetting, match="out of range"):
        make()


def test_a_network_is_loaded_as_requested(tmp_path: Path) -> None:
    folder = tiny_encoder(tmp_path / "checkpoint")
    loaded = load_network(folder, frozen=("embeddings.",), precision="bf16")
    names = {name for name, _ in loaded.trained_parameters()}
    assert names
    assert all(name.startswith("encoder.") for name in names)
    assert all(value.dtype == torch.float32 for value in loaded.model.parameters())
    tokens = TextBatcher(loaded.tokenizer_path, "", WINDOW).batch(TEXTS)
    exact = load_network(folder)
    loaded.model.eval()
    exact.model.eval()
    with torch.no_grad():
        coarse, fine = loaded.hidden(tokens), exact.hidden(tokens)
    assert coarse.dtype == torch.float32
    assert not torch.equal(coarse, fine)
    assert torch.nn.functional.cosine_similarity(coarse, fine, dim=2).min() > 0.99
    with pytest.raises(InvalidSetting, match="no parameter to freeze"):
        load_network(folder, frozen=("nothing",))
    with pytest.raises(InvalidSetting, match="unknown precision"):
        load_network(folder, precision="fp8")
    (folder / "tokenizer.json").unlink()
    with pytest.raises(InvalidSetting, match=r"tokenizer\.json"):
        load_network(folder)
