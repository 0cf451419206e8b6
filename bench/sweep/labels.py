"""Names and sizes of raw results of the sweep."""

from __future__ import annotations

from typing import cast

from bench.harness.records import Record

__all__ = ["VECTOR_PARTS", "setting_name", "vector_bytes"]

VECTOR_PARTS = ("centroids", "codes", "quantizers", "ids")
"""Parts of an index that a library without texts and words would hold too."""


def vector_bytes(record: Record) -> float:
    """Bytes a document of vectors and ids: centroids, codes, ids, and its share of the quantizer."""
    parts = cast(dict[str, int], record["bytes"])
    return sum(parts[part] for part in VECTOR_PARTS) / cast(int, record["n_documents"])


def setting_name(record: Record) -> str:
    """What was built, and how it was searched if that is not the default."""
    index, search = cast(Record, record["index"]), cast(Record, record["search"])
    words = [
        str(index["representation"]),
        *(_stored(index) if "build" in index else [f"{index['factory']} alone"]),
    ]
    return ", ".join(words + [f"{name} {value}" for name, value in search.items() if value not in (None, "auto")])


def _stored(index: Record) -> list[str]:
    build = cast(Record, index["build"])
    code_bytes = build.get("code_bytes", "default")
    codes = "" if code_bytes == 0 else f"codes of {code_bytes}"
    centroids = str(build.get("centroids", "int8"))
    words = [f"{codes} alone"] if centroids == "none" else [each for each in (centroids, codes) if each]
    return [*words, f"nlist {index['nlist']}"] if index["nlist"] else words
