"""Adapters of embedded databases, which keep documents beside their vectors; one module each.

Each module has one class that implements `bench.peers.protocol`; settings of an adapter are in
`bench.peers.registry`.
"""
