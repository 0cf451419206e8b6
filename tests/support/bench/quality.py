"""The measures of `bench`, as a reference for those of other packages."""

from bench.data.quality import measure_quality

__all__ = ["measure_quality"]
