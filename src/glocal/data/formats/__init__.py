"""One file per family of file formats.

Each offers generators `(source, options, problems) -> Iterator[Document]` that stream the rows of a
file; `glocal.data.readers` picks one and checks what comes out of it.
"""
