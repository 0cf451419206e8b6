"""Search in a shop, in Python and over HTTP: order, boosts, groups, filters, facets, synonyms, prices.

Usage: python examples/shop.py [PRODUCTS [PORT]]; 120 generated products by default. With a port, the shop is then
served there, with its page, until Ctrl+C. Needs the extra server: pip install 'quarry-search[server]'.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import uvicorn

import quarry
import quarry.server

KINDS = {
    "Kettle": ("kitchen", "boils water for tea and coffee"),
    "Toaster": ("kitchen", "browns four slices of bread at once"),
    "Blender": ("kitchen", "turns fruit and ice into smoothies"),
    "Television": ("living room", "shows films in high definition"),
    "Headphones": ("music", "keep the noise of trains and planes out"),
    "Loudspeaker": ("music", "fills a large room with sound"),
    "Desk lamp": ("light", "lights a book without dazzling"),
    "Tent": ("outdoors", "keeps two people dry on a campsite"),
    "Backpack": ("outdoors", "carries what a hike of three days takes"),
    "Rain jacket": ("clothes", "stays dry in a storm and packs small"),
}
MAKES = {
    "Steel": "robust",
    "Compact": "for small rooms",
    "Wireless": "without cables",
    "Quiet": "hardly heard",
    "Classic": "made as fifty years ago",
}
BRANDS = ("Zenith", "Norvik", "Alba", "Córdoba", "Hikari", "Oakfield", "Pallas", "Tern")
SYNONYMS = {"tv": ["television"], "rucksack": ["backpack"], "cordless": ["wireless"]}
WRITE_KEY = "only-for-this-example"
NEWER = {"published": {"recency": {"half_life": "180d"}}, "rating": {"linear": {"weight": 0.02}}}
# What each search shows: the query, and options that are the same in Python and in the JSON of HTTP.
SEARCHES: dict[str, tuple[str, dict[str, Any]]] = {
    "what is meant": ("something to keep me dry when it rains", {}),
    "a typing error": ("hedphones", {}),
    "a synonym": ("cordless tv", {"mode": "lexical"}),
    "a brand without its accent": ("cordoba kettle", {"mode": "lexical"}),
    "an article number": ("SKU-00007", {"min_relevance": 0.5}),
    "cheapest first": ("kettle", {"sort": "price", "mode": "lexical", "total": True}),
    "by brand, then the best rated": ("tent", {"sort": ["brand", "-rating"], "mode": "lexical"}),
    "new and well rated": ("headphones", {"boost": NEWER}),
    "an offer on top": ("kettle", {"boost": {"sku": {"pin": {"values": ["SKU-00040"]}}}}),
    "one of each brand": ("loud music", {"group_by": "brand", "filter": {"stock.count": {"$gt": 0}}}),
    "affordable, in stock": (
        "light for reading",
        {"filter": {"price": {"$between": [20, 80]}, "stock.count": {"$gt": 0}, "tags": "light"}},
    ),
    "new this year, not of steel": (
        "+toaster -steel",
        {"operators": True, "filter": {"published": {"$gte": "2026"}}, "total": True},
    ),
    "browsing, without a query": ("", {"filter": {"tags": "outdoors"}, "sort": "-published", "total": True}),
    "the next page": ("", {"filter": {"tags": "outdoors"}, "sort": "-published", "offset": 3}),
}


def products(number: int) -> Iterator[dict[str, Any]]:
    """Yield products, the same in every run."""
    draw = random.Random(47)
    for n in range(number):
        kind, (tag, purpose) = draw.choice(list(KINDS.items()))
        make, quality = draw.choice(list(MAKES.items()))
        brand = draw.choice(BRANDS)
        yield {
            "id": f"p{n}",
            "title": f"{make} {kind} {draw.choice('ABCDEFGH')}{draw.randrange(10, 1000)}",
            "text": f"This {kind.lower()} is {quality}, and {purpose}.",
            "metadata": {
                "sku": f"SKU-{n:05}",
                "brand": brand,
                "price": round(draw.lognormvariate(4, 0.6), 2),
                "stock": {"count": max(0, draw.randrange(-5, 40))},
                "rating": draw.randrange(10, 51) / 10,
                "published": date(2026, 11, 1) - timedelta(days=draw.randrange(1000)),
                "tags": [tag, make.lower()],
            },
        }


@contextmanager
def served(path: Path, port: int = 0) -> Iterator[str]:
    """Serve the shop on a thread, and yield its address."""
    access = quarry.server.Access(write_key=WRITE_KEY)
    with quarry.server.app({"shop": path}, access=access) as application:
        server = uvicorn.Server(uvicorn.Config(application, port=port, log_level="warning"))
        thread = threading.Thread(target=server.run)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def ask(address: str, what: str, body: dict[str, Any], method: str = "POST") -> Any:  # noqa: ANN401
    """Send a request to the shop and return the answer."""
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {WRITE_KEY}"}
    request = urllib.request.Request(
        f"{address}/v1/indexes/shop/{what}", json.dumps(body).encode(), headers, method=method
    )
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def search(index: quarry.Engine, address: str) -> None:
    """Search with each of SEARCHES, in Python and over HTTP, and print the titles."""
    for what, (query, options) in SEARCHES.items():
        start = time.perf_counter()
        hits = index.search(query, k=3, **options)
        took = time.perf_counter() - start
        answer = ask(address, "search", {"query": query, "k": 3, **options})
        assert [hit.id for hit in hits] == [hit["id"] for hit in answer["hits"]]
        found = [f"{hit.title} of {hit.metadata['brand']} for {hit.metadata['price']}" for hit in hits]
        number = "" if hits.total is None else f", {hits.total} in all"
        print(f"{what} ({query!r}, {1000 * took:.0f} ms{number}): {'; '.join(found)}")


def main(number: int, port: int | None = None) -> None:
    """Build the shop, search it, and change prices."""
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "shop"
        report = quarry.build(
            products(number),
            path,
            progress=False,
            searchable=["sku", "brand", "tags"],
            field_weights={"title": 2, "brand": 2},
            synonyms=SYNONYMS,
        )
        print(f"{report.n_documents} products in {report.duration_s:.1f} s, {report.size_bytes / 2**20:.1f} MiB")
        with quarry.Engine.open(path, refresh=True) as index, served(path) as address:
            search(index, address)

            rain = {"query": "dry", "filter": {"stock.count": {"$gt": 0}}}
            brands = index.facets("brand", **rain)
            answer = ask(address, "facets", {"fields": ["brand"], **rain})["facets"]["brand"]
            assert [each["value"] for each in answer["values"]] == [each.value for each in brands.values]
            print("brands of what keeps dry:", {each.value: each.n_documents for each in brands.values})

            sale = {"filter": {"tags": "steel", "price": {"$gt": 100}}, "sort": "price", "k": 3}
            before = index.search(**sale)
            with quarry.Engine.open(path, writable=True) as writer:
                writer.update_metadata(
                    {hit.id: {"price": hit.metadata["price"] - 100, "stock.count": 9} for hit in before}
                )
                writer.commit()
            assert not {hit.id for hit in before} & {hit.id for hit in index.search(**sale)}
            ask(address, "documents", {"changes": {before[0].id: {"price": 1}}}, "PATCH")
            cheapest = index.search(sort="price", filter={"tags": "steel"}, k=3)
            print("after the sale:", [(hit.title, round(hit.metadata["price"], 2)) for hit in cheapest])
        if port is not None:
            with served(path, port) as address:
                print(f"{address}/ (Ctrl+C stops)")
                threading.Event().wait()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 120, int(sys.argv[2]) if len(sys.argv) > 2 else None)
