"""Synchronization of an index with the files of a folder.

`folder_sync` compares and changes, `stored_files` reads what the index knows of the files. The state of a file
that is needed for this is stored with its document, in ``metadata["file"]``: there is nothing else to get lost.
"""
