"""The GPU backend, in torch.

Start with `backend`. Centroids that fit are scanned exhaustively (`rows`, `scan`); otherwise lists of
PQ codes are searched (`lists`, `quantizer`). `queries` prepares queries on the device.
"""
