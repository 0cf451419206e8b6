"""A FastAPI application with a search of its own and, below /find, the page and all requests of `quarry serve`.

Run it with `uvicorn fastapi_application:application` in this folder; started as a program, it asks itself one
question.
Needs FastAPI and the extra server: pip install fastapi 'quarry-search[server]'.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI

import quarry
import quarry.server

RECIPES = [
    {
        "id": "bread",
        "text": "Knead flour, water, salt and yeast; let the dough rise.",
        "metadata": {"minutes": 240},
    },
    {
        "id": "soup",
        "text": "Boil carrots and ginger, then blend them with coconut milk.",
        "metadata": {"minutes": 40},
    },
    {
        "id": "salad",
        "text": "Mix tomatoes, cucumber, olives and feta with olive oil.",
        "metadata": {"minutes": 10},
    },
]
folder = tempfile.TemporaryDirectory()
path = Path(folder.name) / "recipes"
quarry.build(RECIPES, path, progress=False)
search = quarry.server.app({"recipes": path})
index = quarry.Engine.open(path, refresh=True)  # many engines may read an index at once


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    """Close the indexes when the application ends."""
    yield
    search.close()
    index.close()
    folder.cleanup()


application = FastAPI(title="Recipes", lifespan=lifespan)


@application.get("/recipes")
def find_recipes(query: str, minutes: int = 1000) -> quarry.Hits:
    """Return the recipes that fit best and take at most so many minutes; FastAPI calls this on a thread."""
    return index.search(query, k=2, filter={"minutes": {"$lte": minutes}})


application.mount("/find", search)  # the page is at /find/


async def main() -> None:
    """Ask the application a question, without a network."""
    query = "query=something%20warm%20with%20vegetables&minutes=60"
    scope = {"type": "http", "method": "GET", "path": "/recipes", "query_string": query.encode(), "headers": []}
    parts: list[bytes] = []

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:  # noqa: ANN401
        parts.append(message.get("body", b""))

    async with lifespan(application):
        await application(scope, receive, send)
    print(b"".join(parts).decode())


if __name__ == "__main__":
    asyncio.run(main())
