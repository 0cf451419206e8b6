"""Training data: from collections and files to the batches of each step.

Start with `sources`, which reads BEIR collections (`beir`) and JSON Lines of pairs and triples (`json_lines`) into
an `example_store`: texts and numbers on disk, so that memory does not grow with the texts. `refusal` prevents
training on evaluation data. `clusters` groups similar passages, `batches` draws the batch of any step, of one
source or a mixture, from seed and step number alone, so that an interrupted training can be resumed. `negatives`
mines hard negatives with an index of Quarry.
"""
