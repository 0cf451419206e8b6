"""Tries what docs/choosing.md says of other libraries: ``python -m bench.peers.features LIBRARY``.

It runs in an environment that has the library, needs nothing of Quarry, and prints what each try found. What a
library has no call for cannot be tried, and is not here.
"""

from __future__ import annotations

import datetime
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

Tries = Iterator[tuple[str, Callable[[], object]]]
ROWS = (  # id, title, text, year, author, vector
    ("moon", "Tides", "The Moon raises the tides.", 2021, "Ann", [1.0, 0.0, 0.0, 0.0]),
    ("sun", "Sun", "The Sun raises the tides too.", 2023, "Bob", [0.9, 0.1, 0.0, 0.0]),
    ("bread", "Bread", "Yeast makes the dough rise.", 2022, "Ann", [0.0, 1.0, 0.0, 0.0]),
)


def other_process(program: str) -> str:
    """Return the last line that a program prints in another process, or the last line of its error."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    return (done.stdout or done.stderr).strip().splitlines()[-1][:100]


def lancedb(folder: str) -> Tries:
    """Try LanceDB."""
    db = import_module("lancedb")
    query = import_module("lancedb.query")
    published = datetime.datetime(2025, 1, 2, tzinfo=datetime.UTC)
    rows = [
        {"id": name, "title": title, "text": text, "year": year, "author": {"name": author}, "vector": vector}
        | {"published": published}
        for name, title, text, year, author, vector in ROWS
    ]
    table = db.connect(folder).create_table("docs", rows)
    table.create_fts_index("text", with_position=True, use_tantivy=False)
    table.create_fts_index("title", use_tantivy=False, base_tokenizer="ngram", prefix_only=True)

    def ids(given: object, **options: object) -> list[str]:
        return [row["id"] for row in table.search(given, query_type="fts", **options).limit(9).to_list()]

    match, must_not, must = query.MatchQuery, query.Occur.MUST_NOT, query.Occur.MUST
    hybrid = table.search(query_type="hybrid").vector(ROWS[0][5]).text("dough")
    yield "hybrid", lambda: [row["id"] for row in hybrid.limit(2).to_list()]
    yield "a typing error", lambda: ids(match("doough", "text", fuzziness=1))
    yield "a prefix", lambda: ids(match("tid", "title"))
    yield "a phrase", lambda: ids(query.PhraseQuery("moon raises", "text"))
    without = query.BooleanQuery([(must, match("tides", "text")), (must_not, match("sun", "text"))])
    yield "a word excluded", lambda: ids(without)
    yield "weights of fields", lambda: ids(query.MultiMatchQuery("tides", ["title", "text"], boosts=[5.0, 1.0]))
    by_year = [query.ColumnOrdering(column_name="year", ascending=False)]
    yield (
        "sorted hits",
        lambda: [row["id"] for row in table.search("tides", query_type="fts").order_by(by_year).to_list()],
    )
    for name, condition in (
        ("a nested field", "author.name = 'Ann'"),
        ("a regular expression", "regexp_like(text, 'M..n')"),
        ("a date", "published > timestamp '2025-01-01'"),
    ):
        yield name, lambda condition=condition: table.count_rows(condition)  # type: ignore[misc]
    yield "metadata changed", lambda: table.update(where="id = 'moon'", values={"year": 2030})
    opened = f"import lancedb; t = lancedb.connect({folder!r}).open_table('docs');"
    yield "another process reads", lambda: other_process(f"{opened} print(t.count_rows())")
    yield "it writes, too", lambda: other_process(f"{opened} t.delete(\"id='sun'\"); print(t.count_rows())")
    yield "a reader follows by itself", table.count_rows
    killed = f"{opened} t.delete(\"id='bread'\"); import os; os.kill(os.getpid(), 9)"
    yield "after a kill", lambda: (other_process_dies(killed), db.connect(folder).open_table("docs").count_rows())


def other_process_dies(program: str) -> int:
    """Return the exit status of a program that ends itself."""
    return subprocess.run([sys.executable, "-c", program], capture_output=True, check=False).returncode


def chromadb(folder: str) -> Tries:
    """Try Chroma in the process."""
    chroma = import_module("chromadb")
    docs = chroma.PersistentClient(folder).create_collection("docs", embedding_function=None)
    docs.add(
        ids=[row[0] for row in ROWS],
        documents=[row[2] for row in ROWS],
        embeddings=[row[5] for row in ROWS],
        metadatas=[{"year": row[3], "tags": [row[4], "all"]} for row in ROWS],
    )
    yield "hybrid", lambda: docs.search(chroma.Search().rank(chroma.Knn(query=ROWS[0][5], limit=2)))
    yield "a word", lambda: docs.get(where_document={"$contains": "dough"})["ids"]
    yield "a regular expression", lambda: docs.get(where_document={"$regex": "M..n"})["ids"]
    yield "a word excluded", lambda: docs.get(where_document={"$not_contains": "Sun"})["ids"]
    yield "a list", lambda: docs.get(where={"tags": {"$contains": "Ann"}})["ids"]
    yield "a nested field", lambda: docs.update(ids=["moon"], metadatas=[{"author": {"name": "Ann"}}])
    yield "a date", lambda: docs.update(ids=["moon"], metadatas=[{"on": datetime.date(2025, 1, 2)}])
    yield "metadata changed", lambda: docs.update(ids=["moon"], metadatas=[{"year": 2030}])
    client = f"chromadb.PersistentClient({folder!r})"
    opened = f"import chromadb; c = {client}.get_collection('docs', embedding_function=None);"
    yield "another process reads", lambda: other_process(f"{opened} print(c.count())")
    nearest = "c.query(query_embeddings=[[1.0, 0, 0, 0]], n_results=9)['ids']"
    added = f"{opened} c.add(ids=['new'], embeddings=[[1.0, 0, 0, 0]], documents=['new']); print({nearest})"
    yield "it writes, too", lambda: other_process(added)
    yield "a reader follows by itself", lambda: docs.query(query_embeddings=[ROWS[0][5]], n_results=9)["ids"]
    killed = f"{opened} c.delete(ids=['bread']); import os; os.kill(os.getpid(), 9)"
    yield "after a kill", lambda: (other_process_dies(killed), other_process(f"{opened} print(c.count())"))


def qdrant_edge(folder: str) -> Tries:
    """Try Qdrant Edge."""
    edge = import_module("qdrant_edge")
    config = edge.EdgeConfig(
        vectors={"v": edge.EdgeVectorParams(size=4, distance=edge.Distance.Cosine)},
        sparse_vectors={"words": edge.EdgeSparseVectorParams(modifier=edge.Modifier.Idf)},
    )
    shard, bm25 = edge.EdgeShard.create(folder, config), edge.Bm25(edge.Bm25Config())
    points = [
        edge.Point(
            number,
            {"v": vector, "words": bm25.embed_document(text)},
            {"id": name, "text": text, "year": year, "author": {"name": author}, "on": "2025-01-02T00:00:00Z"},
        )
        for number, (name, _, text, year, author, vector) in enumerate(ROWS)
    ]
    update = edge.UpdateOperation
    shard.update(update.upsert_points(points))
    text = edge.TextIndexParams(phrase_matching=True)
    kinds = {"text": text, "year": "Integer", "author.name": "Keyword", "on": "Datetime"}
    for key, kind in kinds.items():
        schema = getattr(edge.PayloadSchemaType, kind) if isinstance(kind, str) else kind
        shard.update(update.create_field_index(key, schema))

    def found(condition: object) -> int:
        return int(shard.count(edge.CountRequest(filter=edge.Filter(must=[condition]))))

    def field(key: str, **condition: object) -> object:
        return edge.FieldCondition(key=key, **condition)

    sides = [
        edge.Prefetch(limit=3, query=edge.Query.Nearest(ROWS[0][5], using="v")),
        edge.Prefetch(limit=3, query=edge.Query.Nearest(bm25.embed_query("dough"), using="words")),
    ]

    def query(combined: object) -> list[object]:
        request = edge.QueryRequest(limit=3, query=combined, prefetches=sides, with_payload=True)
        return [(point.payload["id"], round(point.score, 2)) for point in shard.query(request)]

    yield "hybrid", lambda: query(edge.Fusion.Rrf(60))
    yield "a phrase", lambda: found(field("text", match=edge.MatchPhrase("moon raises")))
    yield "a prefix", lambda: found(field("text", match=edge.MatchPrefix("The M")))
    yield "facets", lambda: [(hit.value, hit.count) for hit in shard.facet(edge.FacetRequest("author.name")).hits]
    yield "a nested field", lambda: found(field("author.name", match=edge.MatchValue("Ann")))
    yield "a date", lambda: found(field("on", range=edge.RangeDateTime(gt="2025-01-01T00:00:00Z")))
    order = edge.OrderBy("year", edge.Direction.Desc)
    without = edge.Filter(
        must=[field("text", match=edge.MatchText("tides"))], must_not=[field("text", match=edge.MatchText("sun"))]
    )
    yield "a word excluded", lambda: shard.count(edge.CountRequest(filter=without))
    yield (
        "sorted documents",
        lambda: [
            each.payload["id"] for each in shard.scroll(edge.ScrollRequest(order_by=order, with_payload=True))[0]
        ],
    )
    boosted = edge.Formula(
        edge.Expression.Sum([edge.Expression.Variable("$score"), edge.Expression.Variable("year")])
    )
    yield "boosts", lambda: query(boosted)
    yield "metadata changed", lambda: shard.update(update.set_payload([0], {"year": 2030}))
    opened = f"import qdrant_edge as e; s = e.EdgeShard.load({folder!r});"
    counted = f"{opened} print(s.count(e.CountRequest()))"
    yield "another process reads", lambda: (shard.flush(), other_process(counted))
    killed = (
        f"{opened} s.update(e.UpdateOperation.delete_points([2])); s.flush(); import os; os.kill(os.getpid(), 9)"
    )
    yield "after a kill", lambda: (shard.close(), other_process_dies(killed), other_process(counted))


def txtai(folder: str) -> Tries:
    """Try txtai, with vectors of our own."""
    embeddings = import_module("txtai").Embeddings
    numpy = import_module("numpy")
    vectors = {row[2]: row[5] for row in ROWS}

    def transform(texts: list[str]) -> object:
        return numpy.array([vectors.get(text, ROWS[2][5]) for text in texts], numpy.float32)

    index = embeddings(method="external", transform=transform, content=True, hybrid=True)
    rows = [{"text": text, "year": year, "author": {"name": author}} for _, _, text, year, author, _ in ROWS]
    index.index((row[0], data, None) for row, data in zip(ROWS, rows, strict=True))

    def select(rest: str, what: str = "id") -> Callable[[], object]:
        return lambda: index.search(f"select {what} from txtai where {rest}", 9)

    yield "hybrid", lambda: index.search("dough", 2)
    yield "sorted hits", select("similar('tides') order by year desc")
    yield "groups, facets and totals", select("similar('tides') group by author.name", "author.name, count(*) n")
    yield "boosts", select("similar('tides') order by score + year / 10000 desc", "id, score")
    yield "a nested field", select("[author.name] = 'Ann'")
    yield "a word excluded", select("text not like '%Sun%'")
    yield "a prefix of the text", select("text like 'The M%'")
    yield "a regular expression", select("text regexp 'M..n'")
    yield "why", lambda: index.explain("tides", limit=1)
    yield (
        "saved as a whole",
        lambda: (
            index.save(f"{folder}/index"),
            sorted(each.name for each in (Path(folder) / "index").iterdir()),
        ),
    )


def sqlite3(folder: str) -> Tries:
    """Try FTS5 of SQLite."""
    sqlite = import_module("sqlite3")
    path = f"{folder}/docs.db"
    db = sqlite.connect(path)
    db.execute("pragma journal_mode = wal")
    db.execute("create virtual table docs using fts5(id unindexed, title, text, meta unindexed, tokenize=porter)")
    rows = [
        (name, title, text, f'{{"year": {year}, "author": {{"name": "{who}"}}}}')
        for name, title, text, year, who, _ in ROWS
    ]
    db.executemany("insert into docs values (?, ?, ?, ?)", rows)
    db.commit()

    def select(rest: str, what: str = "id") -> Callable[[], object]:
        return lambda: db.execute(f"select {what} from docs where {rest}").fetchall()

    yield "a prefix", select("docs match 'tid*'")
    yield "a phrase", select("""docs match '"moon raises"'""")
    yield "a word excluded", select("docs match 'tides NOT sun'")
    yield "a typing error", select("docs match 'tidse'")
    yield "accents", select("docs match 'tídes'")
    yield "weights of fields", select("docs match 'tides' order by bm25(docs, 0, 10, 1)")
    yield "sorted hits", select("docs match 'tides' order by meta ->> 'year' desc")
    yield (
        "groups, facets and totals",
        select("docs match 'tides' group by 1", "meta ->> '$.author.name', count(*)"),
    )
    yield "places", select("docs match 'tides'", "highlight(docs, 2, '[', ']')")
    yield "a nested field", select("meta ->> '$.author.name' = 'Ann'")
    yield "a regular expression", select("text regexp 'M..n'")
    opened = f"import sqlite3; db = sqlite3.connect({path!r});"
    yield (
        "another process reads",
        lambda: other_process(f"{opened} print(*db.execute('select count(*) from docs'))"),
    )
    deleted = "db.execute('delete from docs where id = ?', ['sun']); db.commit()"
    killed = f"{opened} {deleted}; import os; os.kill(os.getpid(), 9)"
    yield "after a kill", lambda: (other_process_dies(killed), select("true", "count(*)")())


LIBRARIES = {
    "lancedb": lancedb,
    "chromadb": chromadb,
    "qdrant-edge-py": qdrant_edge,
    "txtai": txtai,
    "sqlite3": sqlite3,
}


def main() -> None:
    """Print what each try of a library found."""
    name = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        print(name, import_module(name).sqlite_version if name == "sqlite3" else version(name))
        for what, attempt in LIBRARIES[name](folder):
            try:
                found = repr(attempt())
            except Exception as error:  # that is what it finds
                found = f"{type(error).__name__}: {error}"
            print(f"  {what}: {' '.join(found.split())[:160]}", flush=True)


if __name__ == "__main__":
    main()
