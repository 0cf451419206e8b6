"""Trained encoders to bundles that the engine runs."""
