"""Measurements of parts of the system: encoding, exporting, committing, merging, starting."""
