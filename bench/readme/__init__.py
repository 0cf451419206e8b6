"""The main figures of Quarry.

`figures` compares them with targets, `probes` measures single figures in new processes, `everything` runs all
measurements in order.

May import: everything in `bench` and `quarry`.
"""
