"""Requests and responses of HTTP, independent of indexes.

Start with `operations`: the description of what a path answers, and the steps that all requests share. `gate`
checks hosts, `access` says who may do what, `bodies` and `json_schema` read and check what clients send.
`failures` is the shape of all errors, `openapi` describes everything, with `type_schemas` of results, and
`metrics` counts.
"""
