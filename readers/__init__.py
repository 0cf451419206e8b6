"""Files and folders as documents, on top of the engine, which imports this package when a path is given to it.

`files` reads one file of any kind, `folders` the files of a folder, `sync` makes an index follow a folder.
"""
