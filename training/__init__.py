"""Training of encoders and rerankers, for the representations that the engine stores and the hits it finds.

Start with `run`: it reads a recipe (`recipe`), prepares the data (`data`), loads a checkpoint (`model`), trains it
for an objective (`objectives`), or as a cross-encoder, in the training loop (`loop`) and leaves a checkpoint that
``quarry export`` turns into a bundle. `command` is ``quarry train``. `DATA.md` lists the data sets of the recipes
in ``recipes/``, with source, licence and size.
"""
