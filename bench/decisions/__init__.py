"""One measurement for each default of the engine that was chosen by measuring."""
