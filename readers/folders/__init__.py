"""Folders of files that are documents: which files count, in which order.

`glob_pattern` matches patterns as git does, `ignore_rules` applies ``.gitignore`` files, `folder_files` lists the
files of a folder, `sources` reads them as documents, `table_rows` the rows of tables.
"""
