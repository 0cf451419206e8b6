"""Training through product quantization: encoders and codebooks that are searched by codes.

Start with `compressed.CompressedObjective`: it wraps an objective of `quarry.training.objectives`, whose rows
become codes. `repconc` has RepCONC (constrained clustering) and DPQ (the baseline without), `jpq` JPQ (codebook
and query encoder against fixed codes, which `stored_codes` keeps). `product_quantizer` codes and decodes inside
the graph, is written to a checkpoint, and made by OPQ to start from; `preparation` builds what a recipe names.

JPQ trains a second codebook, for scores; documents that are added to an index later are coded with the first.
"""
