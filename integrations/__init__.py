"""Adapters for frameworks: `langchain`, `llama_index`, `haystack`, and the MCP server of ``quarry mcp``.

Each module needs the library it is named after, which the extra of the same name installs. All open indexes
through `open_index`: searches follow the commits of other processes, and the write lock is held only while
something is written, so that several processes can use one index. What callers give is checked by `arguments`.
"""
