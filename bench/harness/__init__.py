"""What every measurement shares: records, the state of the machine, timing, fresh processes.

`records` writes raw results as JSON Lines, `environment` describes the machine, `latency` and `process_memory`
measure,
`fresh_process` runs a function in a process of its own, `progress` prints elapsed time.
"""
