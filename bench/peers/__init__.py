"""Other search libraries, one small adapter each, measured beside Quarry on the same vectors and queries."""
