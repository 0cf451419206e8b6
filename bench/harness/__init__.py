"""Parts of every measurement: records, description of the machine, timing, new processes.

`records` writes raw results as JSON Lines, `environment` describes the machine, `latency` and `process_memory`
measure, `fresh_process` runs a function in a new process.
"""
