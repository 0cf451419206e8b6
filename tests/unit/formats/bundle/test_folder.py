"""The parts that all kinds of bundles share."""

from __future__ import annotations

import hashlib
from pathlib import Path

from quarry.formats.bundle.folder import file_sha256


def test_the_digest_of_several_files_is_that_of_their_joined_content(tmp_path: Path) -> None:
    contents = [b"", b"abc", bytes(range(256)) * 5000]
    paths = [tmp_path / str(number) for number in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
        assert file_sha256(path) == hashlib.sha256(content).hexdigest()
    assert file_sha256(*paths) == hashlib.sha256(b"".join(contents)).hexdigest()
