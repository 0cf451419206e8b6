"""The panel: many collections in one table, by which features of ranking and encoders are decided.

Start reading at `command`. `collections` reads or makes the collections; `searches` measures
them with cached indexes; `statistics` has intervals and the rule.
"""
