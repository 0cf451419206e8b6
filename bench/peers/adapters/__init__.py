"""One adapter for each library that is measured beside Quarry."""
