"""Tests for parts of other packages: classes of pytest tests that a package derives its own from.

Each class checks one protocol, and takes what it checks from a fixture of the derived class, or of its module:
`BackendContract` (fixture ``backend``), `EncoderContract` (``encoder``), `ReaderContract` (``reader`` and
``content``), `RepresentationContract` (``representation``) and `RerankerContract` (``reranker``). Quarry's own
parts pass the same tests. pytest has to be installed.
"""

import pytest

pytest.register_assert_rewrite(*(f"{__name__}.{each}" for each in ("backends", "models", "readers")))

from quarry.testing.backends import BackendContract
from quarry.testing.models import EncoderContract, RepresentationContract, RerankerContract
from quarry.testing.readers import ReaderContract

__all__ = ["BackendContract", "EncoderContract", "ReaderContract", "RepresentationContract", "RerankerContract"]
