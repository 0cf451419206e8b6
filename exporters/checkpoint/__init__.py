"""Checkpoints: folders of trained models in the layout of Hugging Face and sentence-transformers.

Start with `checkpoint`, which describes a whole folder. `files` finds a folder, or downloads it by name, and reads
single files, graphs with weights in separate files among them; `head_reader` and `head` cover what follows the
network (pooling, linear layers, Aggretriever); `networks` knows the variants of BERT.
"""
