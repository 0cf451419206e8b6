"""The GPU backend, in torch.

Start with `backend`. Centroids that fit are scanned exhaustively (`rows`, `scan`, `scores`); otherwise lists of
PQ codes are searched (`lists`, `quantizer`, `coded_rows`). `queries` prepares queries on the device.
"""
