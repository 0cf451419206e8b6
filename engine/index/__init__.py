"""One open generation of an index.

Start with `view`: a generation with its searchers; `base_view` has what it shares with an index of several shards.
`current_view` holds the current one (`current`) and follows commits, `memory` divides the memory limit,
`statistics` and `verification` implement ``stats`` and ``verify``, and `drift` says when a quantizer should be
trained again.

May import: `quarry.engine.search` and what that imports.
"""
