"""The contract of representations, in numpy and on a device (torch's CPU device here)."""

from __future__ import annotations

import numpy as np
import pytest
from support.models.tokenized import prepared_text

from quarry.engine.representation.base import DocumentVectors, Representation
from quarry.engine.representation.first_m import Cls, FirstM
from quarry.engine.representation.kmeans import KMeans
from quarry.engine.representation.pieces import Pieces
from quarry.engine.representation.single import Mean, Passages, Pooled
from quarry.testing import RepresentationContract
from quarry.testing.models import TokenizedDocument

ON_DEVICE = (Pieces(5), Pieces(4096), KMeans(1), KMeans(4))


@pytest.mark.parametrize("representation", [*ON_DEVICE, Mean(), Pooled(), Passages()], ids=repr)
class TestInNumpy(RepresentationContract):
    pass


@pytest.mark.parametrize("representation", [FirstM(3)], ids=repr)
class TestFirstM(RepresentationContract):
    first_tokens = 3


@pytest.mark.parametrize("representation", [Cls()], ids=repr)
class TestCls(RepresentationContract):
    first_tokens = 1


@pytest.mark.parametrize("representation", ON_DEVICE, ids=repr)
class TestOnDevice(RepresentationContract):
    def represent(
        self, representation: Representation, documents: list[TokenizedDocument], normalize: bool
    ) -> list[DocumentVectors]:
        torch = pytest.importorskip("torch", reason="representations on a device need torch")
        from quarry.engine.encoding.batch_encoder import DeviceTokens
        from quarry.engine.representation.on_device import device_representation

        on_device = device_representation(representation)
        offsets = np.cumsum([0, *(len(document.values) for document in documents)])
        values = torch.from_numpy(np.concatenate([document.values for document in documents]))
        prepared = [prepared_text(each.starts, each.ends, each.bounds) for each in documents]
        plans = [on_device.plan(each.text, text) for each, text in zip(documents, prepared, strict=True)]
        return on_device.represent(DeviceTokens(values, offsets), prepared, plans, normalize)
