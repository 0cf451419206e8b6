"""A server of the Model Context Protocol: indexes as tools of a language model's client."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import anyio.to_thread
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool
from mcp.types import ToolAnnotations
from pydantic import Field

from quarry.engine import Document, Engine, Hit
from quarry.engine.arguments import check_names
from quarry.formats.errors import InvalidSetting, QuarryError
from quarry.integrations.open_index import OpenIndex
from quarry.integrations.passages import start_in_text

__all__ = ["make_server"]

T = TypeVar("T")

_MAX_HITS = 50  # of a search
_MAX_QUERY_CHARACTERS = 10_000
_READ_CHARACTERS = 20_000  # of a document in one answer, about 5,000 tokens
_MAX_READ_CHARACTERS = 1_000_000
_INSTRUCTIONS = """Search collections of documents by meaning and by words. Call `search` with a question or a few
words; each result is a passage with the id of its document, its source, and `relevance`, an estimate of the
probability that it answers the query. Call `get_document` to read around its `offset`, or a whole text, and
`count_values` to learn which values a field of the metadata has, before you filter, sort or group by it."""

Index = Annotated[
    str | None, Field(description="name of the index, see `list_indexes`; not needed if there is one")
]
Filter = Annotated[
    dict[str, Any] | None,
    Field(
        description='conditions on metadata, id, title and text: {"lang": "en", "year": {"$gte": 2020}}; operators'
        " $eq $ne $in $nin $gt $gte $lt $lte $between $exists $contains $icontains $prefix $iprefix $ieq $regex"
        " $all $size $elemMatch, and $and $or $not of filters; dates are texts such as 2025-01-31"
    ),
]
Operators = Annotated[
    bool | None,
    Field(description='true: "exact phrase", +word, -word, field:value and prefix* in the query are conditions'),
]


def make_server(
    indexes: Mapping[str, OpenIndex], *, is_writable: bool = False, synced: Mapping[str, Path] | None = None
) -> MCPServer[Any]:
    """Return a server with the tools `list_indexes`, `search`, `count_values` and `get_document`.

    Args:
        indexes: the indexes by name.
        is_writable: whether there are the tools `add` and `delete` too.
        synced: for some of the indexes a folder, which the tool `sync` makes the index follow. Clients cannot
            choose folders, because what is indexed can be read.

    Raises:
        InvalidSetting: `synced` names an index that there is not, or the server is read-only.
    """
    if synced and not is_writable:
        raise InvalidSetting("a folder is to be followed by a read-only server", expected="writable, or no folder")
    for name in synced or {}:
        if name not in indexes:
            raise InvalidSetting(
                "a folder for an index that is not served", expected=" or ".join(sorted(indexes)), actual=name
            )
    tools = _Tools(indexes, synced or {})
    reads = ToolAnnotations(read_only_hint=True, open_world_hint=False)
    reading = (tools.search, tools.count_values, tools.get_document, tools.list_indexes)
    offered = [_strict_tool(each, reads) for each in reading]
    if is_writable:
        adds = ToolAnnotations(
            read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False
        )
        changes: list[Callable[..., Any]] = [tools.add, tools.delete, *([tools.sync] if synced else [])]
        offered += [_strict_tool(each, adds) for each in changes]
    return MCPServer("quarry", title="Quarry", instructions=_INSTRUCTIONS, log_level="WARNING", tools=offered)


def _strict_tool(method: Callable[..., Any], annotations: ToolAnnotations) -> Tool:
    """Return a tool that refuses arguments it does not have; the library would ignore them."""
    tool = _StrictTool.from_function(method, annotations=annotations)
    tool.parameters["additionalProperties"] = False
    return tool


class _StrictTool(Tool):
    async def run(self, arguments: dict[str, Any], *others: Any, **options: Any) -> Any:
        try:
            check_names(arguments, list(self.parameters["properties"]))
        except InvalidSetting as error:
            raise ToolError(f"{type(error).__name__}: {error}") from error
        return await super().run(arguments, *others, **options)


class _Tools:
    """The tools; their docstrings and types are what clients see."""

    def __init__(self, indexes: Mapping[str, OpenIndex], synced: Mapping[str, Path]) -> None:
        self._indexes = indexes
        self._synced = synced

    async def list_indexes(self) -> list[dict[str, Any]]:
        """List the indexes with their number of documents, or with the error of one that cannot be read."""
        return await _run(lambda: [_summary(name, index) for name, index in self._indexes.items()])

    async def search(  # noqa: PLR0913, PLR0917  # what clients see
        self,
        query: Annotated[
            str | None,
            Field(
                description="a question, a sentence, or words; without one, documents are found by filter or sort",
                max_length=_MAX_QUERY_CHARACTERS,
            ),
        ] = None,
        index: Index = None,
        k: Annotated[int, Field(description="number of results", ge=1, le=_MAX_HITS)] = 5,
        filter: Filter = None,  # noqa: A002  # the name that Engine.search has
        min_relevance: Annotated[
            float | None,
            Field(description="leave out results that are less likely to answer the query", ge=0, le=1),
        ] = None,
        unit: Annotated[
            Literal["passage", "document"] | None,
            Field(description="with document, the best passage of each document, as by default with sort"),
        ] = None,
        offset: Annotated[int, Field(description="number of results to leave out", ge=0, le=10_000)] = 0,
        like: Annotated[str | None, Field(description="instead of a query, the id of a document")] = None,
        mode: Annotated[
            Literal["hybrid", "dense", "lexical"] | None,
            Field(description="by meaning and words (default), meaning, or words (default with sort)"),
        ] = None,
        operators: Operators = None,
        sort: Annotated[
            str | list[str] | None,
            Field(
                description="fields by which all results are sorted instead: price, or -date for the newest first"
            ),
        ] = None,
        boost: Annotated[
            dict[str, Any] | None,
            Field(
                description="what fields add to scores from 0 to 1; to prefer what is new, or highly rated:"
                ' {"date": {"recency": {"half_life": "30d"}}, "stars": {"log1p": {"weight": 0.05}}}'
            ),
        ] = None,
        group_by: Annotated[
            str | None, Field(description="a field, or id; only the best result with each of its values")
        ] = None,
    ) -> list[dict[str, Any]]:
        """Search an index, and return the best passages."""
        searched = self._index(index).searcher
        unit = unit or ("document" if sort else "passage")
        mode = mode or ("lexical" if sort and query else None)
        given: Any = {"filter": filter, "min_relevance": min_relevance, "unit": unit, "offset": offset}
        given |= {
            "like": like,
            "mode": mode,
            "operators": operators,
            "sort": sort,
            "boost": boost,
            "group_by": group_by,
        }
        options: Any = {name: value for name, value in given.items() if value is not None}
        return await _run(lambda: [_result(hit) for hit in searched.search(query or None, k, **options)])

    async def count_values(
        self,
        field: Annotated[str, Field(description="a field of the metadata, such as author.name; or title")],
        query: Annotated[
            str | None,
            Field(description="only documents with a word of it are counted", max_length=_MAX_QUERY_CHARACTERS),
        ] = None,
        index: Index = None,
        filter: Filter = None,  # noqa: A002
        operators: Operators = None,
        limit: Annotated[int, Field(description="number of values, the most frequent ones", ge=1, le=1000)] = 20,
    ) -> dict[str, Any]:
        """Count the documents that have each value of a field of the metadata."""
        searched = self._index(index)
        options: Any = {"query": query, "filter": filter, "operators": operators, "limit": limit}
        return await _run(lambda: searched.reader().facets(field, **options).to_dict())

    async def get_document(
        self,
        id: Annotated[str, Field(description="id of a result")],  # noqa: A002
        index: Index = None,
        offset: Annotated[int, Field(description="number of characters of the text to leave out", ge=0)] = 0,
        limit: Annotated[
            int, Field(description="most characters to return", ge=1, le=_MAX_READ_CHARACTERS)
        ] = _READ_CHARACTERS,
    ) -> dict[str, Any]:
        """Return a part of a document's text; the answer says how long it is, and the offset to read on at."""
        searched = self._index(index)
        documents = await _run(lambda: searched.reader().get(id))
        if not documents:
            raise ToolError(f"there is no document {id!r} in the index, perhaps any more; search again for its id")
        return _content(documents[0], offset, limit)

    async def add(
        self,
        text: Annotated[str, Field(description="text of the document")],
        id: Annotated[str, Field(description="its id; a document with the same id is replaced")],  # noqa: A002
        title: str = "",
        metadata: dict[str, Any] | None = None,
        index: Index = None,
    ) -> str:
        """Add a document to an index, or replace it."""
        document = {"id": id, "text": text, "title": title, "metadata": metadata or {}}
        await self._write(index, lambda engine: engine.add([document]))
        return f"added {id!r}"

    async def delete(self, ids: list[str], index: Index = None) -> str:
        """Delete documents from an index by their ids."""
        n_deleted = await self._write(index, lambda engine: engine.delete(ids))
        return f"deleted {n_deleted} of {len(ids)} documents"

    async def sync(self, index: Index = None) -> dict[str, Any]:
        """Add, replace and delete documents so that an index is up to date with the folder that it follows."""
        name = self._name(index)
        if name not in self._synced:
            raise ToolError(f"this index follows no folder; those that do: {', '.join(self._synced)}")
        report = await _run(partial(self._indexes[name].sync, self._synced[name]))
        return {
            "added": len(report.added),
            "changed": len(report.changed),
            "removed": len(report.removed),
            "failed": dict(report.failed),
        }

    async def _write(self, name: str | None, change: Callable[[Engine], int]) -> int:
        return await _run(partial(self._index(name).write, change))

    def _index(self, name: str | None) -> OpenIndex:
        return self._indexes[self._name(name)]

    def _name(self, given: str | None) -> str:
        """Return the name of an index that there is; the only one if none is given."""
        if given is None and len(self._indexes) == 1:
            return next(iter(self._indexes))
        if given is None or given not in self._indexes:
            names = ", ".join(repr(each) for each in sorted(self._indexes))
            raise ToolError(f"{'name an index' if given is None else f'there is no index {given!r}'}: {names}")
        return given


async def _run(call: Callable[[], T]) -> T:
    """Run a call that may block on a thread; errors of Quarry are messages for the client."""
    try:
        return await anyio.to_thread.run_sync(call)
    except QuarryError as error:
        raise ToolError(f"{type(error).__name__}: {error}") from error


def _summary(name: str, index: OpenIndex) -> dict[str, Any]:
    try:
        return {"name": name, "documents": len(index.reader())}
    except QuarryError as error:  # the others can be searched nevertheless
        return {"name": name, "error": f"{type(error).__name__}: {error}"}


def _result(hit: Hit) -> dict[str, Any]:
    """Return what a language model needs of a hit; the source has the headings, the order is by scores."""
    values = {
        "id": hit.id,
        "title": hit.title or None,
        "source": hit.id if hit.place is None else str(hit.place),
        "passage": hit.passage,
        "offset": start_in_text(hit),
        "relevance": None if hit.relevance is None else round(hit.relevance, 3),
        "text": hit.passages[0].text if hit.passage is None and hit.passages else hit.text,
        "metadata": _metadata(hit) or None,
    }
    return {name: value for name, value in values.items() if value is not None}


def _content(document: Document, offset: int, limit: int) -> dict[str, Any]:
    length, end = len(document.text), offset + limit
    if offset > length:
        raise ToolError(
            f"the text of document {document.id!r} has {length} characters; offset {offset} is past its end"
        )
    following = {"next_offset": end} if end < length else {}
    return {
        "id": document.id,
        "title": document.title,
        "characters": length,
        "offset": offset,
        **following,
        "text": document.text[offset:end],
        "metadata": _metadata(document),
    }


def _metadata(found: Hit | Document) -> dict[str, Any]:
    """Return the metadata without those of a file, which the source names."""
    return {name: value for name, value in found.metadata.items() if name != "file"}
