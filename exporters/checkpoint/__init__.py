"""Checkpoints: folders of trained models, in the layout of Hugging Face and sentence-transformers.

Start with `checkpoint`; `files` reads single files, `head_reader` and `head` what follows the network (pooling,
linear layers, Aggretriever), `networks` the variants of BERT, `hub` names of the Hugging Face hub, `external_data`
weights that lie beside an ONNX graph.
"""
