"""Adapters of search libraries, one module each; see `bench.peers.protocol`.

Here are libraries that index vectors or words in memory or files, and Quarry itself; `databases` has those that
keep documents too.
"""
