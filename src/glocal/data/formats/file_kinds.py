"""Names of common kinds of files that hold no rows of texts, known by their first bytes."""

from __future__ import annotations

import codecs
import re

KINDS = (
    (b"%PDF", "a PDF document; extract its text first, for example with pdftotext"),
    (b"\xd0\xcf\x11\xe0", "an old Word or Excel file; save it as text or CSV"),
    (b"{\\rtf", "an RTF document; save it as plain text"),
    (b"\x89PNG", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"II*\0", "a TIFF image"),
    (b"MM\0*", "a TIFF image"),
    (b"SQLite format 3\0", "an SQLite database; export the table as CSV"),
    (b"\x93NUMPY", "a NumPy array; write texts and labels as JSON lines or CSV"),
    (b"\x89HDF", "an HDF5 file; write texts and labels as JSON lines or CSV"),
    (b"FEA1", "a Feather file of version 1; write it again as version 2 or as Parquet"),
    (b"Obj\x01", "an Avro file; convert it to JSON lines or Parquet"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive; unpack it first"),
    (b"Rar!", "a RAR archive; unpack it first"),
    (b"\x7fELF", "a program"),
    (b"MZ\x90", "a program"),
    (b"\x1f\x8b", "compressed twice; decompress it once"),
)
ZIP = b"PK\x03\x04"
# A name inside an archive, and what the archive is then.
IN_ZIP = (
    (b"word/", "a Word document (DOCX); save it as plain text"),
    (b"xl/", "an Excel file (XLSX); save it as CSV"),
    (b"ppt/", "a PowerPoint file (PPTX); save it as plain text"),
    (b"opendocument.spreadsheet", "a spreadsheet (ODS); save it as CSV"),
    (b"opendocument", "an OpenDocument file; save it as plain text"),
    (b"epub", "an EPUB book; extract its text first"),
    (b"archive/data.pkl", "a PyTorch file, which is not read as it can run code"),
    (b".npy", "a NumPy archive; write texts and labels as JSON lines or CSV"),
)
PICKLE = re.compile(rb"\x80[\x02-\x05](?:\x95|[\]})cq(KX])")
TAR = (257, b"ustar")
CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
MARKUP = (
    (re.compile(rb"\s*<(?:!doctype html|html)\b", re.IGNORECASE), "an HTML page; extract its text"),
    (re.compile(rb"\s*<\?xml\b"), "an XML file; convert it to JSON lines or CSV"),
)
MOST_CONTROL = 0.02  # share of control characters in a text
SAMPLE_BYTES = 4096
FEWEST_ZEROS = 64  # bytes of a file that is mostly zeros, and so no text


def other_kind(head: bytes) -> str:
    """Return what a file that begins with `head` is if it holds no texts, else an empty string.

    Args:
        head: Its first bytes, decompressed.
    """
    if head.startswith(ZIP):
        inside = (kind for name, kind in IN_ZIP if name in head)
        return next(inside, "a ZIP archive; unpack it first")
    if head[TAR[0] : TAR[0] + len(TAR[1])] == TAR[1]:
        return "a tar archive; unpack it first"
    if PICKLE.match(head):
        return "a Python pickle, which is not read as it can run code; write JSON lines or Parquet"
    return next((kind for magic, kind in KINDS if head.startswith(magic)), "")


def is_binary(head: bytes) -> bool:
    """Return whether bytes that are not UTF-16 or UTF-32 are no text in any encoding."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        sample = head[:SAMPLE_BYTES]
        return len(CONTROL.findall(sample)) > MOST_CONTROL * len(sample) + 1
    return len(head) >= FEWEST_ZEROS and 2 * head.count(0) > len(head)


def markup_kind(head: bytes) -> str:
    """Return what a file of markup is, or an empty string."""
    return next((kind for pattern, kind in MARKUP if pattern.match(head)), "")
