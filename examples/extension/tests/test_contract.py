"""The parts of the package pass Quarry's tests for parts of their kinds."""

import pytest
from quarry_example.halves import Halves
from quarry_example.letters import LetterEncoder
from quarry_example.products import ProductsBackend
from quarry_example.shared_words import SharedWords
from quarry_example.subtitles import read_subtitles

from quarry.testing import (
    BackendContract,
    EncoderContract,
    ReaderContract,
    RepresentationContract,
    RerankerContract,
)


class TestProducts(BackendContract):
    least_recall = 1.0

    @pytest.fixture
    def backend(self):
        return ProductsBackend


class TestLetters(EncoderContract):
    @pytest.fixture
    def encoder(self):
        return LetterEncoder()


class TestSubtitles(ReaderContract):
    ending = ".srt"

    @pytest.fixture
    def reader(self):
        return read_subtitles

    @pytest.fixture
    def content(self):
        one = b"1\n00:00:01,000 --> 00:00:02,500\nWho is there?\n\n"
        return one + b"2\n00:00:03,000 --> 00:00:04,000\nThe cat,\nof course.\n"


@pytest.mark.parametrize("representation", [Halves(), Halves(5)])
class TestHalves(RepresentationContract):
    pass


class TestSharedWords(RerankerContract):
    @pytest.fixture
    def reranker(self):
        return SharedWords()
