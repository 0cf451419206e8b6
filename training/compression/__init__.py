"""Training through product quantization: encoders and codebooks that are searched by codes.

Start with `compressed.CompressedObjective`: it wraps an objective of `quarry.training.objectives`, whose rows
become codes. One module each: `repconc` (constrained clustering), `dpq` (the baseline without), `jpq` (codebook
and query encoder against fixed codes, which `stored_codes` keeps). `product_quantizer` codes and decodes inside
the graph, `sinkhorn` assigns under the constraint, `opq` makes the quantizer to start from, `quantizer_file`
writes and reads the one of a checkpoint, and `preparation` builds what a recipe names.

JPQ trains a second codebook, for scores; documents that are added to an index later are coded with the first.

May import: `quarry.training.data`, `quarry.training.model`, `quarry.training.objectives`, `quarry.formats`, torch.
"""
