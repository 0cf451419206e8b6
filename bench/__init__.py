"""Measurements: quality, speed and memory, and the raw results the documents quote."""
