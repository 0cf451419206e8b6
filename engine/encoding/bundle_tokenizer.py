"""How a bundle's texts become tokens: its tokenizer, and what stands around a document and a query."""

from __future__ import annotations

from quarry.engine.encoding.token_frame import token_frame
from quarry.engine.encoding.tokenizer import TextTokenizer, Tokens
from quarry.formats.bundle.encoder import EncoderBundle
from quarry.formats.bundle.folder import TOKENIZER_NAME

__all__ = ["BundleTokenizer"]


class BundleTokenizer:
    """The tokenizer of a bundle, its digest checked.

    Args:
        bundle: where it is.

    Attributes:
        document_frame: what stands around a document's window.
        query_frame: what stands around a query.

    Raises:
        ChecksumMismatch: it is not the bundle's.
        CorruptFile: it is no tokenizer, or the window has no room for text.
    """

    def __init__(self, bundle: EncoderBundle) -> None:
        bundle.verify_files([TOKENIZER_NAME])
        self._tokenizer = TextTokenizer(bundle.tokenizer_path)
        settings = bundle.settings
        self.document_frame = token_frame(self._tokenizer, settings.document_prefix, settings.window, bundle.path)
        self.query_frame = token_frame(self._tokenizer, settings.query_prefix, settings.window, bundle.path)

    def tokenise(self, text: str) -> Tokens:
        """The tokens of a text, special ones left out."""
        return self._tokenizer.tokenise(text)
