"""Parts of every measurement: records, description of the machine, timing, new processes.

`records` writes raw results as JSON Lines, `environment` describes the machine, `latency` measures
times, and `fresh_process` runs a function in a new process and measures memory.
"""
