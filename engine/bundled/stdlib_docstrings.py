"""A corpus that every Python has: the docstrings of its standard library.

Modules written in Python are parsed, not imported: importing the whole library would run it. Code written in C
(``math``, ``str.join``, ``os.listdir``) has docstrings only at run time, so modules of a fixed list, which are
safe to import, are inspected for those. The demonstration, parity of exported models and small benchmarks use it.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import sysconfig
import warnings
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TypedDict

__all__ = ["StdlibDocument", "stdlib_documents"]

_SKIPPED_FOLDERS = frozenset(
    {
        "test",
        "tests",
        "idlelib",
        "lib2to3",
        "site-packages",
        "dist-packages",
        "lib-dynload",
        "turtledemo",
        "distutils",
    }
)
_MODULES_WITH_C = """
array atexit binascii builtins cmath codecs collections csv datetime decimal errno functools gc io itertools json
marshal math mmap operator os pickle random select signal socket struct sys threading time unicodedata weakref zlib
"""
_HOMES_OF_OS = frozenset({"posix", "nt"})
_MIN_CHARACTERS = 20
_Function = ast.FunctionDef | ast.AsyncFunctionDef


class StdlibDocument(TypedDict):
    """One docstring: ``id`` is the dotted name, ``metadata`` holds ``kind`` and ``module``."""

    id: str
    title: str
    text: str
    metadata: dict[str, str]


def stdlib_documents(modules: Collection[str] | None = None) -> Iterator[StdlibDocument]:
    """Yield a document for every public module, class, function and method with a docstring.

    The order is the same at every run of the same Python; ids are unique.

    Args:
        modules: names of the modules to read; None: all, which takes some seconds.

    Yields:
        ``id``: the dotted name; ``title``: the same after its kind, with its signature if it is known; ``text``:
        the docstring without its indentation, at least 20 characters; ``metadata``: ``kind`` ("module", "class",
        "function" or "method") and ``module``.
    """
    seen: set[str] = set()
    for document in _all_documents(modules):
        if len(document["text"]) >= _MIN_CHARACTERS and document["id"] not in seen:
            seen.add(document["id"])
            yield document


def _all_documents(modules: Collection[str] | None) -> Iterator[StdlibDocument]:
    stdlib = Path(sysconfig.get_path("stdlib"))
    for path in _source_files(stdlib):
        name = _module_name(path.relative_to(stdlib))
        if modules is None or name in modules:
            yield from _documents_of_source(path, name)
    for name in _MODULES_WITH_C.split():
        if modules is None or name in modules:
            yield from _documents_of_module(importlib.import_module(name))


def _document(name: str, signature: str, text: str, kind: str, module: str) -> StdlibDocument:
    metadata = {"kind": kind, "module": module}
    return {"id": name, "title": f"{kind} {name}{signature}", "text": text, "metadata": metadata}


# Modules in Python


def _source_files(folder: Path) -> Iterator[Path]:
    """Yield the public modules below a folder, the parent before its parts."""
    for path in sorted(folder.iterdir(), key=lambda path: path.name):
        if path.suffix == ".py" and (path.stem == "__init__" or not path.stem.startswith("_")):
            yield path
        elif (path / "__init__.py").is_file() and _is_public(path.name) and path.name not in _SKIPPED_FOLDERS:
            yield from _source_files(path)


def _module_name(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _is_public(name: str) -> bool:
    return not name.startswith("_")


def _documents_of_source(path: Path, module: str) -> Iterator[StdlibDocument]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes in the source of others
        tree = ast.parse(path.read_bytes())
    if text := ast.get_docstring(tree):
        yield _document(module, "", text, "module", module)
    yield from _documents_of_body(tree.body, module, module, "function")


def _documents_of_body(
    body: Iterable[ast.stmt], prefix: str, module: str, function_kind: str
) -> Iterator[StdlibDocument]:
    for node in body:
        if isinstance(node, ast.If | ast.Try | ast.With):
            yield from _documents_of_body(_branches(node), prefix, module, function_kind)
        elif isinstance(node, ast.ClassDef | _Function) and _is_public(node.name):
            name = f"{prefix}.{node.name}"
            text = ast.get_docstring(node)
            is_class = isinstance(node, ast.ClassDef)
            if text:
                kind = "class" if is_class else function_kind
                yield _document(name, _signature(node, function_kind == "method"), text, kind, module)
            if is_class:
                yield from _documents_of_body(node.body, name, module, "method")


def _branches(node: ast.If | ast.Try | ast.With) -> Iterator[ast.stmt]:
    yield from node.body
    if isinstance(node, ast.Try):
        for handler in node.handlers:
            yield from handler.body
    if not isinstance(node, ast.With):
        yield from node.orelse


def _signature(node: ast.ClassDef | _Function, is_method: bool) -> str:
    if isinstance(node, ast.ClassDef):
        starts = (part for part in node.body if isinstance(part, _Function) and part.name == "__init__")
        start = next(starts, None)
        return "" if start is None else _signature(start, is_method=True)
    arguments = node.args
    if is_method and not _has_decorator(node, "staticmethod"):
        first = arguments.posonlyargs or arguments.args
        del first[:1]
    return "" if _has_decorator(node, "property") else f"({ast.unparse(arguments)})"


def _has_decorator(node: _Function, name: str) -> bool:
    return any(isinstance(decorator, ast.Name) and decorator.id == name for decorator in node.decorator_list)


# Modules in C


def _documents_of_module(module: ModuleType) -> Iterator[StdlibDocument]:
    name = module.__name__
    if text := inspect.getdoc(module):
        yield _document(name, "", text, "module", name)
    for member_name, member in sorted(vars(module).items()):
        if not _is_public(member_name) or not _is_at_home(member, name):
            continue
        if inspect.isbuiltin(member):
            yield from _documents_of_object(member, f"{name}.{member_name}", "function", name)
        elif isinstance(member, type) and member.__name__ == member_name:  # not a second name
            yield from _documents_of_class(member, f"{name}.{member_name}", name)


def _is_at_home(member: object, module: str) -> bool:
    """Whether the module is where a member belongs: it is defined there, or in the C part behind it."""
    home = getattr(member, "__module__", None)
    return home is None or home in _HOMES_OF_OS or home == module or home.startswith("_")


def _documents_of_class(cls: type, name: str, module: str) -> Iterator[StdlibDocument]:
    yield from _documents_of_object(cls, name, "class", module)
    for owner in cls.__mro__:
        if owner.__name__.lstrip("_") == cls.__name__:  # the class itself, or its C implementation
            for member_name, member in sorted(vars(owner).items()):
                if _is_public(member_name) and _is_c_method(member):
                    yield from _documents_of_object(member, f"{name}.{member_name}", "method", module)


def _is_c_method(member: object) -> bool:
    return inspect.ismethoddescriptor(member) or inspect.isgetsetdescriptor(member)


def _documents_of_object(member: object, name: str, kind: str, module: str) -> Iterator[StdlibDocument]:
    text = getattr(member, "__doc__", None)
    if isinstance(text, str):
        yield _document(name, _c_signature(member), inspect.cleandoc(text), kind, module)


def _c_signature(member: object) -> str:
    signature = getattr(member, "__text_signature__", None)
    if not isinstance(signature, str):
        return ""
    parts = " ".join(signature.split())[1:-1].split(", ")
    if parts[0].startswith("$"):
        parts = parts[2:] if parts[1:2] == ["/"] else parts[1:]
    return f"({', '.join(parts)})"
