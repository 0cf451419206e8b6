"""A small product catalog: metadata filters, updates and deletions."""

from __future__ import annotations

import tempfile
from pathlib import Path

import quarry

PRODUCTS = [
    {
        "id": "kettle",
        "text": "Electric kettle, boils a liter in three minutes.",
        "metadata": {"price": 35, "stock": 4},
    },
    {"id": "teapot", "text": "Cast iron teapot with a strainer.", "metadata": {"price": 60, "stock": 0}},
    {"id": "mug", "text": "Stoneware mug, keeps coffee hot.", "metadata": {"price": 12, "stock": 80}},
    {"id": "lamp", "text": "Desk lamp with a warm and a cold light.", "metadata": {"price": 48, "stock": 7}},
]


def main() -> None:
    """Build the catalog, search it with a filter, change it and search again."""
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "catalog"
        quarry.build(PRODUCTS, path, progress=False)
        with quarry.Engine.open(path, writable=True) as index:
            affordable = {"price": {"$lt": 50}, "stock": {"$gt": 0}}
            print(
                "affordable:", [hit.id for hit in index.search("something to make hot drinks", filter=affordable)]
            )
            index.add([{"id": "teapot", "text": PRODUCTS[1]["text"], "metadata": {"price": 45, "stock": 3}}])
            index.delete(["lamp"])
            index.commit()
            print("after the sale:", [hit.id for hit in index.search("brew tea", k=2, filter=affordable)])
            print("products:", len(index))


if __name__ == "__main__":
    main()
