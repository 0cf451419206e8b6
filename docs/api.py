"""Writes docs/api.md and the pages of docs/api from the docstrings of all public names: ``make docs``."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import griffe

ROOT = Path(__file__).resolve().parents[1]
PAGES = {  # the title of a page, its file, and what is on it: names of a module, or all of them
    "Building, opening and changing an index": (
        "index",
        "quarry: build Engine AsyncEngine Document Facets FacetValue BuildReport SyncReport AddIndexesReport",
        "quarry: SnapshotReport VerifyReport Thresholds MergeLimits",
        "quarry.engine.options: BuildOptions",
    ),
    "Searching": (
        "search",
        "quarry: SearchOptions Recency Log1p Saturation Linear Pin",
        "quarry: Hits Hit Match MatchedWord Passage FilePlace Coverage",
    ),
    "Errors and warnings": ("errors", "quarry.formats.errors:", "quarry: UnknownFieldWarning"),
    "Encoders, representations and rerankers": (
        "models",
        "quarry: open_encoder Encoder FunctionEncoder TokenVectors Reranker",
        "quarry: Representation Pieces Mean KMeans FirstM Cls Pooled Passages",
    ),
    "Readers of files": ("readers", "quarry.readers:"),
    "Server": ("server", "quarry.server:"),
    "Frameworks": (
        "integrations",
        *(f"quarry.integrations.{name}:" for name in ("langchain", "llama_index", "haystack", "mcp_server")),
    ),
    "Building and serving with Ray": ("distributed", "quarry.distributed:"),
    "Export and training": ("training", "quarry.exporters.export: export export_reranker", "quarry.training.run:"),
    "Tests for parts of your own": ("testing", "quarry.testing:"),
    "Types in signatures": (
        "types",
        "quarry.engine.documents.reader: DocumentSource Readers",
        "quarry.engine.encoding.opening: EncoderSource",
        "quarry.engine.choices: Mode Fusion Unit CentroidType",
        "quarry.engine.progress: ProgressSetting Report",
    ),
}
NOT_MADE = {"AsyncEngine", "Engine", "Hit", "Hits", "SearchApp", "ServedShards"}  # by a program itself
PAGE = re.compile(r"\bdocs/(\w+\.md)")


def main() -> None:
    """Write all pages."""
    for path, text in pages().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")


def pages() -> dict[Path, str]:
    """Return the text of each page by its path."""
    package = load_package()
    found, lines = {}, ["# All public names", "", "Made of the docstrings by `make docs`.", ""]
    for title, (file, *sources) in PAGES.items():
        described = [f"# {title}", "", "[All public names](../api.md)", ""]
        lines += [f"## {title}", "", "| name | what it is |", "| --- | --- |"]
        for place, value in objects(package, sources):
            described += entry(place, value)
            link = re.sub(r"\W", "", place.lower().replace(".", ""))
            lines.append(f"| [`{place}`](api/{file}.md#{link}) | {summary(value)} |")
        found[ROOT / "docs" / "api" / f"{file}.md"] = PAGE.sub(r"[docs/\1](../\1)", "\n".join(described))
        lines.append("")
    return {ROOT / "docs" / "api.md": "\n".join(lines), **found}


def load_package() -> griffe.Module:
    """Read the package without importing it, from a folder in which its parts are as they are installed."""
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "quarry"
        package.mkdir()
        parts = [path.parent for path in ROOT.glob("*/__init__.py")]
        for path in (*(ROOT / "src" / "quarry").glob("*.py"), *parts):
            (package / path.name).symlink_to(path)
        return griffe.load("quarry", search_paths=[folder], docstring_parser="google")


def objects(package: griffe.Object, sources: list[str]) -> Iterator[tuple[str, griffe.Object]]:
    """Yield what is on a page, with the name that a program imports it by."""
    for source in sources:
        name, _, names = source.partition(":")
        module = package if name == "quarry" else package[name.removeprefix("quarry.")]
        within = "quarry" if name == "quarry.formats.errors" else name
        for each in names.split() or sorted(map(str, module.exports or ())):
            value = (package["engine"] if module is package else module)[each]
            yield f"{within}.{each}", value.final_target if value.is_alias else value


def summary(value: griffe.Object) -> str:
    """Return the first sentence of a docstring in one line."""
    first = value.docstring.value.partition("\n\n")[0] if value.docstring else ""
    return " ".join(first.split()).partition(". ")[0].rstrip(".:")


def entry(place: str, value: griffe.Object) -> list[str]:
    """Return the description of a function or type, or of a class with its methods."""
    lines = [f"## `{place}`", ""]
    if value.is_attribute:
        return [*lines, *block(f"{value.name} = {value.value}"), *described(value)]
    if value.is_function:
        return [*lines, *block(value.signature()), *described(value)]
    is_error = place == f"quarry.{value.name}" and "errors" in value.canonical_path
    if is_error and value.bases:
        lines += [f"It is a `{value.bases[0]}`.", ""]
    elif value.name not in NOT_MADE and "__init__" in value.all_members:
        lines += block(constructor(value))
    lines += described(value)
    for name, found in () if ".testing." in place or is_error else value.all_members.items():
        member = found.final_target if found.is_alias else found
        is_property = "property" in member.labels and member.docstring is not None  # others are attributes
        if not name.startswith("_") and (member.is_function or is_property):
            lines += [f"### `{value.name}.{name}`", "", *block(call(member)), *described(member)]
    return lines


def constructor(kind: griffe.Class) -> str:
    """Return how an object of a class is made."""
    made = kind.all_members["__init__"]
    return re.sub(r"^__init__\((self(, )?)?", f"{kind.name}(", made.signature().removesuffix(" -> None"))


def call(member: griffe.Object) -> str:
    """Return the signature of a method without its object, or the type of a property."""
    if not member.is_function:
        return f"{member.name}: {member.annotation}"
    start = "async " if "async" in member.labels else ""
    return start + re.sub(r"\((self|cls)(, )?", "(", member.signature(), count=1)


def block(text: str) -> list[str]:
    """Return a block of code, quoted as the formatter does; arguments of a long signature are in a line each."""
    text = text.replace("'", '"')
    if len(text) > 115 and "(" in text:
        start, end = text.index("(") + 1, text.rindex(")")
        text = "\n".join([text[:start], *(f"    {each}," for each in arguments(text[start:end])), text[end:]])
    return ["```py", text, "```", ""]


def arguments(text: str) -> Iterator[str]:
    """Yield what commas outside of brackets separate."""
    depth, start = 0, 0
    for number, sign in enumerate(text):
        depth += (sign in "([{") - (sign in ")]}")
        if sign == "," and not depth:
            yield text[start:number].strip()
            start = number + 1
    yield text[start:].strip()


def described(value: griffe.Object) -> Iterator[str]:
    """Yield the lines of a docstring in Markdown; what it lists becomes a list."""
    options = {"returns_multiple_items": False, "returns_named_value": False, "warnings": False}
    for section in value.docstring.parse("google", **options) if value.docstring else ():
        kind = section.kind.value
        if kind == "text":
            yield from (section.value, "")
            continue
        yield from (f"**{kind.capitalize()}**", "")
        for each in section.value:
            name = getattr(each, "name", "") or (each.annotation if kind in ("raises", "warns") else "")
            text = each.description.replace("\n", "\n  ")
            yield f"* `{name}`: {text}" if name else each.description
        yield ""


if __name__ == "__main__":
    main()
