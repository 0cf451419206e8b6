"""Files of segments: written from encoded batches, merged, and adopted from other processes.

Start with `segment_builder`, which writes a segment; `segment_merger` makes one of several. `adopted_segments`
adopts segments that other processes wrote, `new_quantizer` trains and calibrates the first quantizer of an
index, and `graphs` writes HNSW graphs on request.
"""
