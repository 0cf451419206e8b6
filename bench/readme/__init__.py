"""The figures that the README quotes.

`everything` runs all of them, `figures` compares them with targets, `probes` measures single figures.
"""
