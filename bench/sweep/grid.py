"""The settings that `bench.sweep.tradeoff` compares: each differs from a default in one or two ways."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace

__all__ = ["IndexSetting", "SearchSetting", "Setting", "list_settings"]


@dataclass(frozen=True)
class IndexSetting:
    """Settings of a build.

    Attributes:
        representation: key of the vectors, see `bench.data.prepare.representation_key`.
        build: fields of `quarry.engine.options.BuildOptions`.
        nlist: number of inverted lists; None: as the engine decides.
        lists: whether segments have inverted lists whatever their size; False: as the engine decides.
    """

    representation: str
    build: Mapping[str, object] = field(default_factory=dict)
    nlist: int | None = None
    lists: bool = False


@dataclass(frozen=True)
class SearchSetting:
    """Settings of a search: fields of `quarry.engine.options.SearchOptions`, None for the default."""

    backend: str = "auto"
    nprobe: int | None = None
    candidates: int | None = None


@dataclass(frozen=True)
class Setting:
    """One point of the sweep.

    Attributes:
        axis: what is varied.
        index: how the index is built.
        search: how it is searched.
    """

    axis: str
    index: IndexSetting
    search: SearchSetting

    @property
    def key(self) -> str:
        """A digest of index and search, the same in every run."""
        text = json.dumps([asdict(self.index), asdict(self.search)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


_DEFAULT = "pieces-24"
_CODE_BYTES = (8, 12, 16, 24, 32, 48, 64, 96)
_FEW_CODE_BYTES = (8, 24, 48, 96)


def list_settings(keys: list[str], dim: int, *, quick: bool) -> list[Setting]:
    """Return the sweep without duplicates, settings of the same index next to each other.

    Args:
        keys: of the representations.
        dim: dimension of a vector; code sizes that do not divide it are skipped.
        quick: whether to return only a few settings, to try the measurement.
    """
    found: dict[str, Setting] = {}
    for setting in (_quick_settings if quick else _all_settings)(keys, dim):
        found.setdefault(setting.key, setting)
    return sorted(found.values(), key=lambda each: (keys.index(each.index.representation), repr(each.index)))


def _quick_settings(keys: list[str], dim: int) -> Iterator[Setting]:
    sizes = _valid_code_bytes((48,), dim) or [dim // 2]
    for key in keys:
        yield Setting("representation", IndexSetting(key, {"code_bytes": 0}), SearchSetting())
    yield from _code_settings(keys[-1], sizes, "none")
    key = _DEFAULT if _DEFAULT in keys else keys[-1]
    listed = IndexSetting(key, {"code_bytes": sizes[-1]}, nlist=2, lists=True)
    yield from (Setting("nprobe", listed, SearchSetting(nprobe=nprobe)) for nprobe in (1, 2))


def _all_settings(keys: list[str], dim: int) -> Iterator[Setting]:
    for key in keys:
        yield Setting("representation", IndexSetting(key, {"code_bytes": 0}), SearchSetting())
    compared = [key for key in keys if key in ("mean", _DEFAULT, "pieces-64")]
    main = _DEFAULT if _DEFAULT in compared else compared[-1]
    for key in compared:
        yield Setting("precision", IndexSetting(key, {"centroids": "float16"}, lists=True), SearchSetting())
        sizes = _CODE_BYTES if key == main else _FEW_CODE_BYTES
        yield from _code_settings(key, _valid_code_bytes(sizes, dim), "none")
    yield from _code_settings(main, _valid_code_bytes(_FEW_CODE_BYTES, dim), "int8")
    yield Setting("default", IndexSetting(main), SearchSetting())
    default = IndexSetting(main, {}, lists=True)
    yield from _search_settings(default)
    for nlist in (64, 256, 1024):
        narrowed = replace(default, nlist=nlist)
        for nprobe in (1, 4, 16, 64):
            if nprobe <= nlist:
                yield Setting("nlist", narrowed, SearchSetting(nprobe=nprobe))
    for backend in ("scan", "cpu_faiss", "hnsw", "gpu"):  # recall is computed from exact search already
        yield Setting("backend", default, SearchSetting(backend))


def _code_settings(key: str, sizes: list[int], centroids: str) -> Iterator[Setting]:
    """Yield sizes of codes, with or without centroids."""
    axis = "codes alone" if centroids == "none" else "codes and centroids"
    for n_bytes in sizes:
        index = IndexSetting(key, {"code_bytes": n_bytes, "centroids": centroids}, lists=True)
        yield Setting(axis, index, SearchSetting())


def _search_settings(index: IndexSetting) -> Iterator[Setting]:
    for nprobe in (2, 4, 8, 16, 32, 64, 128):
        for candidates in (100, 300) if nprobe != 64 else (50, 100, 300, 1000):
            yield Setting("nprobe and candidates", index, SearchSetting("cpu_faiss", nprobe, candidates))


def _valid_code_bytes(sizes: tuple[int, ...], dim: int) -> list[int]:
    return [n_bytes for n_bytes in sizes if dim % (2 * n_bytes) == 0 and n_bytes <= dim // 2]
