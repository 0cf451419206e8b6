"""Rows of tables as documents: which column is which field, how values are converted, where rows are read.

`columns` maps the columns of a row to the fields of a document, `values` converts values, `delimited` reads
CSV and TSV, `json_documents` reads JSON, `arrow` reads Parquet, Arrow files and whatever exports
Arrow data, `table_files` chooses one of these by the name of a file, `frames` reads tables of pandas and polars.
`document_columns` takes documents and vectors from whole columns at once (`column_values`).
"""
