import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from support.models.tiny_checkpoint import DIM, WORDS, random_weights
from support.models.tiny_checkpoint import write_checkpoint as write_tiny
from support.training.tiny_run import RECIPE, tiny_encoder, write_recipe

torch = pytest.importorskip("torch", reason="objectives need torch")
pytest.importorskip("transformers", reason="training needs transformers")

from safetensors.numpy import load_file, save_file  # noqa: E402

from quarry import engine  # noqa: E402
from quarry.engine import Pooled  # noqa: E402
from quarry.engine.encoding.opening import open_encoder  # noqa: E402
from quarry.exporters.export import export  # noqa: E402
from quarry.formats.errors import InvalidSetting  # noqa: E402
from quarry.training.loop.history import History  # noqa: E402
from quarry.training.model.checkpoint_files import EncoderFiles, write_checkpoint  # noqa: E402
from quarry.training.model.network import EncoderNetwork, load_network  # noqa: E402
from quarry.training.model.tokens import TextBatcher, TextTokens, TokenBatch  # noqa: E402
from quarry.training.model.torch_encoder import TorchEncoder  # noqa: E402
from quarry.training.objectives.aggretriever import Aggretriever, AggretrieverSettings  # noqa: E402
from quarry.training.objectives.objective import StepTargets  # noqa: E402
from quarry.training.objectives.ranking import RankingSettings  # noqa: E402
from quarry.training.objectives.registry import ObjectiveSettings, make_objective  # noqa: E402
from quarry.training.run import train  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_torch_thread")

Floats = npt.NDArray[np.float64]
WINDOW = 40
TEXTS = ["a. bc. def. gh, ij. klm nop.", "a", "ab cd ef gh ij kl mn op. ab cd", "Ab! cd? Ef gh."]
RANKING = RankingSettings(normalize=False, scale=1.0)


def predicting_encoder(folder: Path) -> Path:
    """Write a checkpoint with a masked-language-model head over the vocabulary of the network."""
    rng = np.random.default_rng(8)
    name = "cls.predictions"
    head = {
        f"{name}.bias": rng.normal(0, 0.5, len(WORDS)),
        f"{name}.transform.dense.weight": rng.normal(0, DIM**-0.5, (DIM, DIM)),
        f"{name}.transform.dense.bias": rng.normal(0, 0.3, DIM),
        f"{name}.transform.LayerNorm.weight": 1 + rng.normal(0, 0.3, DIM),
        f"{name}.transform.LayerNorm.bias": rng.normal(0, 0.3, DIM),
    }
    weights = random_weights() | {key: values.astype(np.float32) for key, values in head.items()}
    return write_tiny(folder, weights=weights)


@pytest.fixture(scope="module", params=[False, True], ids=["words", "mlm"])
def network(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> EncoderNetwork:
    make = predicting_encoder if request.param else tiny_encoder
    found = load_network(make(tmp_path_factory.mktemp("tiny") / "checkpoint"), mlm=request.param)
    found.model.eval()
    return found


def made(network: EncoderNetwork, ranking: RankingSettings = RANKING, *, signed: bool = True) -> Aggretriever:
    settings = AggretrieverSettings(5, 7, signed)
    predict = network.word_logits if network.predictor is not None else None
    objective = Aggretriever(ranking, settings, network.dim, 3, predict)
    layers = {name: value for name, (value, _) in objective.parameters().items()}
    torch.manual_seed(9)
    tokens = TextBatcher(network.tokenizer_path, "", WINDOW).batch(TEXTS)
    with torch.no_grad():
        for layer in layers.values():
            layer.add_(0.3 * torch.randn(layer.shape))
        hidden = network.hidden(tokens)[tokens.mask > 0]
        layers["terms.bias"].copy_(
            -(hidden @ layers["terms.weight"].T).median()
        )  # half of the weights are negative
    return objective


def slow_vector(
    states: Floats, ids: list[int], layers: dict[str, Floats], logits: Floats | None, signed: bool
) -> Floats:
    """Compute eq. 4 to 9 word by word, for the tokens of one text with [CLS] and [SEP]."""
    weights = np.maximum(states @ layers["terms.weight"][0] + layers["terms.bias"], 0)
    words = np.zeros(len(WORDS))
    for place in range(1, len(ids)):
        if logits is None:
            words[ids[place]] = max(words[ids[place]], weights[place])
            continue
        shares = np.exp(logits[place] - logits[place].max())
        words = np.maximum(words, weights[place] * shares / shares.sum())
    n_dims = 7
    aggregated = np.zeros(n_dims)
    for dim in range(n_dims):
        if signed:
            slots = [words[2 * dim + side :: 2 * n_dims].max(initial=0) for side in (0, 1)]
            aggregated[dim] = slots[0] if slots[0] > slots[1] else -slots[1]
        else:
            aggregated[dim] = words[dim::n_dims].max()
    return np.concatenate([layers["cls.weight"] @ states[0] + layers["cls.bias"], aggregated])


@pytest.mark.parametrize("signed", [True, False])
def test_vectors_equal_the_reference(network: EncoderNetwork, signed: bool) -> None:
    objective = made(network, signed=signed)
    tokens = TextBatcher(network.tokenizer_path, "", WINDOW).batch(TEXTS)
    with torch.no_grad():
        hidden = network.hidden(tokens)
        logits = network.word_logits(hidden).numpy() if network.predictor is not None else None
        rows = objective.represent_documents(hidden, tokens, 0)
        queries = objective.represent_queries(hidden, tokens)
    layers = {name: value.detach().double().numpy() for name, (value, _) in objective.parameters().items()}
    assert rows.counts == (1,) * len(TEXTS)
    assert torch.equal(rows.values, queries)
    for number, found in enumerate(rows.values.numpy()):
        length = int(tokens.mask[number].sum())
        ids, states = tokens.ids[number, :length].tolist(), hidden[number, :length].double().numpy()
        own = None if logits is None else logits[number, :length].astype(np.float64)
        np.testing.assert_allclose(found, slow_vector(states, ids, layers, own, signed), rtol=1e-4, atol=1e-5)
    assert (rows.values[:, 5:] < 0).any() == signed


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("signed", [True, False])
def test_an_exported_checkpoint_gives_the_vectors_that_were_trained(
    network: EncoderNetwork, tmp_path: Path, signed: bool, normalize: bool
) -> None:
    objective = made(network, RankingSettings(normalize=normalize), signed=signed)
    use = objective.use()
    files = EncoderFiles(
        use.pooling, use.normalize, use.beta, use.representation, WINDOW, "", "", "", use.representation_settings
    )
    write_checkpoint(network, files, tmp_path / "checkpoint", objective.save)
    bundle = export(tmp_path / "checkpoint", tmp_path / "bundle", "fp32", texts=TEXTS, n_recorded=1)
    assert bundle.settings.dim == 12
    encoder = open_encoder(bundle.path)
    tokens = TextBatcher(network.tokenizer_path, "", WINDOW).batch(TEXTS)
    with torch.no_grad():
        expected = objective.represent_documents(network.hidden(tokens), tokens, 0).values.numpy()
    found = [Pooled().represent(text, encoder.windows(text), normalize).values for text in TEXTS]
    np.testing.assert_allclose(np.concatenate(found), expected, rtol=1e-3, atol=1e-4)
    query_vectors = np.stack([encoder.encode_query(text) for text in TEXTS])
    np.testing.assert_allclose(query_vectors, expected, rtol=1e-3, atol=1e-4)
    again = Aggretriever(RANKING, objective.parts, network.dim, 99, checkpoint=tmp_path / "checkpoint")
    for name, (value, _) in again.parameters().items():
        assert torch.equal(value, objective.parameters()[name][0])
    with pytest.raises(InvalidSetting, match="does not fit"):
        Aggretriever(RANKING, AggretrieverSettings(6, 7), network.dim, 0, checkpoint=tmp_path / "checkpoint")


def invented_batch(lengths: list[int], longest: int) -> TokenBatch:
    """Return texts of random words between two special tokens."""
    rng = np.random.default_rng(2)
    ids = torch.zeros((len(lengths), longest), dtype=torch.long)
    mask = torch.zeros_like(ids)
    texts = []
    for row, length in enumerate(lengths):
        drawn = rng.integers(5, len(WORDS), length)
        ids[row, : length + 2] = torch.tensor([2, *drawn.tolist(), 3])
        mask[row, : length + 2] = 1
        texts.append(TextTokens("", drawn, drawn, drawn))
    return TokenBatch(ids, mask, tuple(texts), 1)


@pytest.mark.parametrize("mlm", [False, True])
@pytest.mark.parametrize("signed", [True, False])
def test_gradients_are_finite_differences(signed: bool, mlm: bool) -> None:
    torch.manual_seed(5)
    words = torch.randn(len(WORDS), 4, dtype=torch.float64)
    predict: Callable[[torch.Tensor], torch.Tensor] | None = (lambda hidden: hidden @ words.T) if mlm else None
    objective = Aggretriever(RANKING, AggretrieverSettings(3, 7, signed), 4, 3, predict)
    for parameter, _ in objective.parameters().values():
        parameter.data = torch.randn(parameter.shape, dtype=torch.float64)
    tokens = invented_batch([6, 1, 9], 11)
    hidden = torch.randn(3, 11, 4, dtype=torch.float64, requires_grad=True)
    step = StepTargets(torch.arange(3), torch.eye(3, dtype=torch.bool), torch.arange(3), "s", {})

    def loss(states: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
        rows = objective.represent_documents(states, tokens, 0)
        terms = objective.loss(objective.represent_queries(states.flip(0), tokens), rows, step)
        return torch.stack(list(terms.values())).sum()

    layers = [parameter for parameter, _ in objective.parameters().values()]
    assert torch.autograd.gradcheck(loss, (hidden, *layers))
    objective.represent_queries(hidden, tokens).sum().backward()
    assert hidden.grad is not None
    assert not hidden.grad[tokens.mask == 0].any()


def test_the_loss_is_that_of_the_whole_and_of_either_part(network: EncoderNetwork) -> None:
    objective = made(network)
    rng = np.random.default_rng(1)
    queries, documents = rng.standard_normal((2, 3, 12))
    step = StepTargets(torch.arange(3), torch.eye(3, dtype=torch.bool), torch.arange(3), "s", {})
    from quarry.training.objectives.scoring import DocumentRows

    terms = objective.loss(torch.from_numpy(queries), DocumentRows(torch.from_numpy(documents), (1, 1, 1)), step)
    for name, weight, part in (
        ("contrastive", 1, slice(None)),
        ("contrastive, [CLS] alone", 0.5, slice(0, 5)),
        ("contrastive, aggregated alone", 0.5, slice(5, None)),
    ):
        scores = np.exp(queries[:, part] @ documents[:, part].T)
        expected = -np.log(np.diag(scores) / scores.sum(1)).mean()
        assert terms[name].item() == pytest.approx(weight * expected)
    assert len(terms) == 3


def test_the_predicting_head_is_trained_frozen_and_kept(tmp_path: Path) -> None:
    folder = predicting_encoder(tmp_path / "checkpoint")
    network = load_network(folder, mlm=True)
    names = [name for name, _ in network.trained_parameters()]
    assert "cls.predictions.transform.dense.weight" in names
    assert "cls.predictions.decoder.weight" not in names  # shared with the word embeddings
    frozen = load_network(folder, mlm=True, frozen=("embeddings.",))
    assert not any("word" in name or "decoder.weight" in name for name, _ in frozen.trained_parameters())
    weights = network.weights()
    before = load_file(folder / "model.safetensors")
    assert weights.keys() == before.keys()
    for name, values in before.items():
        np.testing.assert_array_equal(weights[name].numpy(), values)
    changed = {name: values + 1 for name, values in weights.items()}
    network.load_weights(changed)
    for name, values in network.weights().items():
        assert torch.equal(values, changed[name])
    with pytest.raises(ValueError, match="do not fit"):
        network.load_weights({name: values for name, values in weights.items() if not name.startswith("cls")})
    with pytest.raises(InvalidSetting, match="no masked-language-model head"):
        load_network(tiny_encoder(tmp_path / "plain"), mlm=True)


def test_a_head_of_words_of_its_own_is_kept(tmp_path: Path) -> None:
    folder = predicting_encoder(tmp_path / "checkpoint")
    weights = load_file(folder / "model.safetensors")
    weights["cls.predictions.decoder.weight"] = (
        np.random.default_rng(1).normal(0, 1, (len(WORDS), DIM)).astype("f4")
    )
    save_file(weights, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text("utf-8"))
    (folder / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": False}), "utf-8")
    network = load_network(folder, mlm=True)
    found = network.weights()["cls.predictions.decoder.weight"].numpy()
    np.testing.assert_array_equal(found, weights["cls.predictions.decoder.weight"])


def test_an_encoder_in_training_gives_the_same_vectors_to_the_engine(network: EncoderNetwork) -> None:
    objective = made(network)
    use = objective.use()
    files = EncoderFiles(use.pooling, use.normalize, use.beta, use.representation, WINDOW, "", "", "")
    encoder = TorchEncoder(network, files, "0", objective.represent_queries)
    assert encoder.vector_kinds == {"pooled"}
    tokens = TextBatcher(network.tokenizer_path, "", WINDOW).batch(TEXTS)
    with torch.no_grad():
        expected = objective.represent_documents(network.hidden(tokens), tokens, 0).values.numpy()
    found = [Pooled().represent(text, encoder.windows(text), False).values for text in TEXTS]
    np.testing.assert_allclose(np.concatenate(found), expected, rtol=1e-4, atol=1e-4)
    query_vectors = np.stack([encoder.encode_query(text) for text in TEXTS])
    np.testing.assert_allclose(query_vectors, expected, rtol=1e-4, atol=1e-4)
    assert encoder.dim == expected.shape[1]


def test_a_run_mines_trains_and_exports(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="plots need matplotlib")
    chosen = 'name = "aggretriever"\nmlm = true\nnormalize = false\nscale = 1.0\nn_cls = 4\nn_dims = 6'
    text = RECIPE.replace('name = "passages"\ntokens_per_piece = [4, 8]', chosen)
    for setting in ("passage_weight = 0.25\n", "rounds_weights = true\n"):
        text = text.replace(setting, "")
    assert chosen in text
    recipe = write_recipe(tmp_path / "recipe", text)
    shutil.rmtree(tmp_path / "recipe" / "checkpoint")
    predicting_encoder(tmp_path / "recipe" / "checkpoint")
    final = train(recipe, tmp_path / "run")
    records = History(tmp_path / "run" / "history.jsonl").records()
    terms = {"contrastive", "contrastive, [CLS] alone", "contrastive, aggregated alone"}
    assert all(terms < set(each["terms"]) for each in records if "terms" in each)  # type: ignore[call-overload]
    before, after = (
        load_file(folder / "model.safetensors") for folder in (tmp_path / "recipe" / "checkpoint", final)
    )
    name = "cls.predictions.transform.dense.weight"
    assert before.keys() == after.keys()
    assert not np.array_equal(before[name], after[name])
    bundle = export(final, tmp_path / "bundle", "fp32", texts=TEXTS, n_recorded=1)
    engine.build(["abc def", "ghi"], tmp_path / "index", encoder=bundle.path, progress=False)
    with engine.Engine.open(tmp_path / "index", encoder=bundle.path) as opened:
        assert opened.stats()["representation"]["name"] == "pooled"
        assert len(opened.search("abc", 2)) == 2


@pytest.mark.parametrize("change", [{"n_cls": 0}, {"n_dims": 0}, {"part_weight": -1.0}])
def test_settings_out_of_range_are_refused(change: dict[str, float]) -> None:
    with pytest.raises(InvalidSetting, match="out of range"):
        AggretrieverSettings(**change)  # type: ignore[arg-type]


def test_a_checkpoint_with_a_projection_is_refused(tmp_path: Path) -> None:
    folder = tiny_encoder(tmp_path / "checkpoint")
    save_file({"projection.weight": np.eye(DIM, dtype=np.float32)}, folder / "head.safetensors")
    with pytest.raises(InvalidSetting, match=r"head\.safetensors: aggretriever has layers of its own"):
        make_objective(ObjectiveSettings(name="aggretriever"), network=load_network(folder))
