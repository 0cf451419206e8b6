"""Encoders made of functions: an embedding model of another library, or a service, called with lists of texts.

Start with `function_encoder`; `sources` recognizes what a model offers.
"""
