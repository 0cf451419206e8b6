"""Adapters of search libraries, one module each; see `bench.peers.protocol`.

May import: `bench.peers.protocol`, and the library inside functions.
"""
