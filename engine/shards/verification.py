"""Reading every byte of a sharded index."""

from __future__ import annotations

import numpy as np

from quarry.engine.index.verification import VerifyReport, verify_index
from quarry.formats.container.directory import Directory
from quarry.formats.errors import CorruptFile, FormatError, IndexNotFound, ShardNotFound
from quarry.formats.shard_set import ShardSet, has_shard_set, load_newest_shard_set, shard_of
from quarry.formats.snapshot import Snapshot

__all__ = ["verify_folder", "verify_shards"]


def verify_folder(directory: Directory) -> VerifyReport:
    """Read every byte of the index in a folder, sharded or not.

    Raises:
        IndexNotFound: there is no index.
        FormatError: a file is damaged; the message lists all damage, `findings` holds the errors.
    """
    return verify_shards(directory) if has_shard_set(directory) else verify_index(directory)


def verify_shards(directory: Directory) -> VerifyReport:
    """Read every byte of the newest generation of a sharded index and of its shards.

    It is also checked that every document is in the shard that its id belongs to.

    Raises:
        FormatError: a file is damaged; the message lists all damage, `findings` holds the errors.
    """
    shard_set = load_newest_shard_set(directory)
    reports: list[VerifyReport] = []
    findings: list[FormatError] = []
    for number, name in enumerate(shard_set.folders):
        try:
            shard = Directory(directory.path / name)
            reports.append(verify_index(shard))
            findings += _misplaced(shard, number, shard_set)
        except IndexNotFound as error:
            findings.append(ShardNotFound(path=error.path))
        except FormatError as error:
            findings += error.findings or (error,)
    if findings:
        message = f"{len(findings)} damages:\n" + "\n".join(map(str, findings))
        damage = FormatError(message, path=directory.path)
        damage.findings = tuple(findings)
        raise damage
    return VerifyReport(
        n_files=1 + sum(report.n_files for report in reports),
        n_bytes=directory.size_bytes(shard_set.name) + sum(report.n_bytes for report in reports),
        n_documents=sum(report.n_documents for report in reports),
    )


def _misplaced(shard: Directory, number: int, shard_set: ShardSet) -> list[FormatError]:
    """One error if a shard has documents that belong to another, or other settings than the first shard."""
    n_shards, snapshot = len(shard_set.folders), Snapshot(shard)
    try:
        for segment in snapshot.segments:
            for doc_id in segment.reader.ids.read(np.arange(segment.reader.n_docs)):
                if shard_of(doc_id, n_shards) != number:
                    return [
                        CorruptFile(
                            "a document is in the wrong shard",
                            path=segment.reader.path,
                            expected=f"shard {shard_of(doc_id, n_shards)}",
                            actual=f"shard {number}, document {doc_id!r}",
                        )
                    ]
    finally:
        snapshot.close()
    return []
