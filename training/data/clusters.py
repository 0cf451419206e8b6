"""Groups of similar passages: k-means clusters of a model's vectors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from quarry.formats.errors import InvalidSetting
from quarry.training.data.example_store import ExampleStore
from quarry.training.model.network import EncoderNetwork
from quarry.training.model.tokens import TextBatcher

__all__ = ["cluster_vectors", "document_vectors"]

_TEXTS_AT_ONCE = 64  # encoded
_N_ROUNDS = 10  # of k-means
_ROWS_AT_ONCE = 1 << 14  # compared with all centers


def cluster_vectors(values: torch.Tensor, n_clusters: int, seed: int) -> npt.NDArray[np.int64]:
    """Cluster vectors by their cosines: Lloyd's algorithm, ten rounds from vectors drawn at random.

    Batches of one cluster have hard in-batch negatives, as TAS-B's topic-aware sampling (Hofstätter et al. 2021).

    Args:
        values: (n, dim) float32.
        n_clusters: at least 1; at most n are made.
        seed: the seed of the draw.

    Returns:
        (n,) int64, the cluster of each vector; a cluster may be empty.

    Raises:
        InvalidSetting: fewer clusters than one.
    """
    if n_clusters < 1:
        raise InvalidSetting("clusters are too few", expected="1 at least", actual=n_clusters)
    unit = torch.nn.functional.normalize(values, dim=1)
    rng = np.random.default_rng(seed)
    first = np.sort(rng.choice(len(unit), min(n_clusters, len(unit)), replace=False))
    centers = unit[torch.from_numpy(first)]
    labels = _nearest(unit, centers)
    for _ in range(_N_ROUNDS):
        sums = torch.zeros_like(centers).index_add(0, labels, unit)
        is_empty = torch.bincount(labels, minlength=len(centers)) == 0
        centers = torch.where(is_empty[:, None], centers, torch.nn.functional.normalize(sums, dim=1))
        labels = _nearest(unit, centers)
    numbers: npt.NDArray[np.int64] = labels.numpy()
    return numbers


def document_vectors(
    store: ExampleStore,
    network: EncoderNetwork,
    batcher: TextBatcher,
    numbers: Sequence[int] | None = None,
    *,
    of_first_token: bool = False,
) -> torch.Tensor:
    """The mean of each document's token vectors: (n_documents, dim) float32 on the CPU.

    Args:
        store: the documents.
        network: is left in evaluation mode.
        batcher: cuts and tokenizes the documents.
        numbers: the numbers of some documents; None: all of them.
        of_first_token: take the vector of [CLS] instead.
    """
    numbers = range(store.n_documents) if numbers is None else numbers
    network.model.eval()
    vectors = []
    for low in range(0, len(numbers), _TEXTS_AT_ONCE):
        tokens = batcher.batch([store.document(number) for number in numbers[low : low + _TEXTS_AT_ONCE]])
        with torch.no_grad():
            hidden = network.hidden(tokens).cpu()
        if of_first_token:
            vectors.append(hidden[:, 0])
            continue
        weights = tokens.mask[:, :, None].float()
        vectors.append((hidden * weights).sum(1) / weights.sum(1))
    return torch.cat(vectors)


def _nearest(unit: torch.Tensor, centers: torch.Tensor) -> torch.Tensor:
    return torch.cat([(rows @ centers.T).argmax(1) for rows in unit.split(_ROWS_AT_ONCE)])
