"""Requests and responses of HTTP, independent of indexes.

Start with `operations`: the description of what a path answers, and the steps that all requests share. `gate`
checks hosts, `access` and `keys` say who may do what, `bodies` and `json_schema` read and check what clients send,
`failures` is the shape of all errors, `openapi` the description of everything, `metrics` and `figures`
what was done and used.
"""
