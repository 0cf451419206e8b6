"""Building with several processes: each encodes batches of documents, one commits them.

Start with `attempt.BuildAttempt`: it makes a folder for the files of one attempt and describes the work (`job`), a
`batch_writer.BatchWriter` in any process writes batches of documents there as segments, and `commit` makes one
index of them. It does not matter what distributes the batches: for processes of this machine `worker_processes`,
for Ray `quarry.distributed`.
"""
