"""The network under training: tokens in, token vectors or scores out, and the files of its checkpoint.

Start with `network.EncoderNetwork`, a transformers model with its tokenizer. `tokens` makes padded batches of
texts and of pairs, cut exactly as the engine cuts them. `torch_encoder.TorchEncoder` lets the engine build an
index with the network as it is in the middle of training. `cross_encoder.CrossEncoder` is the network of a
reranker. `checkpoint_files` writes what ``quarry export`` reads.
"""
