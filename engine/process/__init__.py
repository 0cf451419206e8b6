"""The process that Quarry is embedded in: its threads, its exit, and libraries that may fail to load.

`worker_pool` is a pool of threads with an owner, and work computed ahead in order; `exit_gate` keeps the
interpreter from exiting in the middle of native code on daemon threads; `per_process` holds objects that are made
again after a fork, and models that are open once in a process; `spawned` starts processes that Ctrl-C is not for;
`cpus` counts the CPUs that may be used; `libraries` translates failures to import one; `cuda` detects devices
through the driver, without importing torch.
"""
