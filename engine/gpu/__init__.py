"""The GPU backend's parts, each of which needs torch; `engine.backends.gpu` puts them together."""
