"""Shared fixtures: folders of test collections, a small corpus and an index of it."""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import tiers
from asyncio_settings import add_settings
from exit_limit import pytest_unconfigure  # noqa: F401  # a hook
from support.bench.readme_run import ReadmeRun, run_readme
from support.faults.torture import Tally
from support.models.bundle_projects import all_installed

from quarry import engine

if shutil.which("nvidia-smi") is None:
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when Triton is imported, which torch may do

REPOSITORY = Path(__file__).resolve().parent.parent


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add options and settings of the command line."""
    add_settings(parser)
    tiers.add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Add what the options of the tiers ask for."""
    tiers.register(config)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Choose the tests that run."""
    tiers.choose(config, items)


def pytest_collection_finish() -> None:
    """Leave what is imported by now out of garbage collections, which tests cause by the hundred."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def installed_bundles(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let the encoders of the folder `bundles` be installed."""
    with all_installed(tmp_path_factory.mktemp("site")):
        yield


@pytest.fixture(scope="session")
def repository() -> Path:
    """Return the root of the checkout."""
    return REPOSITORY


@pytest.fixture(scope="session")
def data_folder() -> Callable[[str], Path]:
    """Return a function that maps a collection's name to its BEIR folder and skips the test if it is missing."""
    root = Path(os.environ.get("QUARRY_DATA", REPOSITORY.parent / "shared" / "data"))

    def find(name: str) -> Path:
        folder = root / name
        if not folder.is_dir():
            pytest.skip(f"the collection {name} is not there; QUARRY_DATA names the folder of collections")
        return folder

    return find


@pytest.fixture(scope="module")
def one_torch_thread() -> Iterator[None]:
    """Run torch on one thread: tests are so small that threads cost more time than they save."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def torture(request: pytest.FixtureRequest) -> Iterator[Tally]:
    """Return the counts of this test, which are saved at the torture level if it passes."""
    tally = Tally(request.node.nodeid)
    failed = request.session.testsfailed
    yield tally
    if request.session.testsfailed == failed:
        tally.save()


@pytest.fixture(scope="session")
def small_corpus() -> list[dict[str, object]]:
    """Return forty documents on ten subjects, with unusual ids, titles, metadata, and long and short texts."""
    return [
        {
            "id": f"{subject}/{number} é 文",
            "title": subject.title() if number % 2 else "",
            "text": " ".join([sentence] + [_FILLER] * (8 * (number == 3))),
            "metadata": {"subject": subject, "number": number},
        }
        for subject, sentences in _SUBJECTS.items()
        for number, sentence in enumerate(sentences)
    ]


_FILLER = "More can be said about it, and people who care about such things have said it at length elsewhere."
_SUBJECTS = {
    "bread": (
        "A sourdough loaf rises slowly because wild yeast works at its own pace.",
        "Knead the dough until it is smooth and elastic, then let it rest under a cloth.",
        "An oven that is hot enough gives the loaf a dark, crackling crust.",
        "Rye flour holds more water than wheat flour and makes a denser bread.",
    ),
    "volcano": (
        "Lava with little silica flows far before it becomes solid rock.",
        "Ash from an eruption can stop flights over half a continent.",
        "A caldera forms when the roof of an emptied magma chamber falls in.",
        "Earthquakes below a mountain often warn of an eruption weeks ahead.",
    ),
    "chess": (
        "A bishop never leaves the colour of the squares it starts on.",
        "Castling moves the king to safety and brings a rook into play.",
        "In the endgame the king becomes a strong piece and should move to the centre.",
        "A pawn that reaches the last rank may be promoted to a queen.",
    ),
    "bicycle": (
        "A worn chain slips on the sprockets when the rider pedals hard.",
        "Disc brakes keep their power in rain and mud.",
        "Tyres with lower pressure roll comfortably over gravel.",
        "The saddle is at the right height when the leg is almost straight at the lowest point of the pedal.",
    ),
    "moon": (
        "The same side of the moon always faces the earth.",
        "Tides follow the pull of the moon on the water of the oceans.",
        "Craters on the moon stay for millions of years because no wind wears them down.",
        "A lunar eclipse happens when the earth stands between the sun and the moon.",
    ),
    "violin": (
        "The bow of a violin is strung with hair from a horse's tail.",
        "A luthier carves the belly of the instrument from spruce.",
        "Vibrato comes from rocking the finger that stops the string.",
        "The four strings are tuned in fifths, from G to E.",
    ),
    "bee": (
        "A worker bee dances to tell the others where the flowers are.",
        "Honey keeps for years because it holds so little water.",
        "The queen lays up to two thousand eggs a day in summer.",
        "In winter the bees of a hive huddle together and shiver to keep warm.",
    ),
    "bridge": (
        "A suspension bridge hangs its deck from cables between two towers.",
        "Stone arches carry weight by pressing it sideways into their feet.",
        "Wind made the slender deck twist until it tore apart.",
        "Expansion joints let a long deck grow on hot days.",
    ),
    "tea": (
        "Green tea turns bitter when it is brewed with boiling water.",
        "Black tea is made from leaves that were left to oxidise.",
        "High gardens with cool nights give a tea its flowery scent.",
        "Matcha is whisked into hot water with a bamboo brush.",
    ),
    "printing": (
        "Movable type let a printer set a page from single letters of metal.",
        "An offset press carries the ink from a plate to a rubber blanket and then to paper.",
        "Kerning brings two letters closer so that the gap between them looks even.",
        "Early printers mixed their ink from linseed oil and soot.",
    ),
}


@pytest.fixture(scope="session")
def small_index(tmp_path_factory: pytest.TempPathFactory, small_corpus: list[dict[str, object]]) -> Iterator[Path]:
    """Return an index of the small corpus, for reading only."""
    path = tmp_path_factory.mktemp("small") / "index"
    engine.build(small_corpus, path)
    manifests = list(path.glob("MANIFEST-*"))
    yield path
    assert list(path.glob("MANIFEST-*")) == manifests, "a test changed the index that others read"


@pytest.fixture(scope="session")
def readme_run(
    repository: Path, tmp_path_factory: pytest.TempPathFactory, small_corpus: list[dict[str, object]]
) -> ReadmeRun:
    """Return the results of the measurements that bench/README.md shows first, run once on the small corpus."""
    for module in ("ir_measures", "bm25s", "matplotlib"):
        pytest.importorskip(module, reason="the measurements need the extra bench")
    page = (repository / "bench" / "README.md").read_text(encoding="utf-8")
    own = tmp_path_factory.getbasetemp()
    folder = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own  # of all workers
    return run_readme(page, folder / "readme", small_corpus)
