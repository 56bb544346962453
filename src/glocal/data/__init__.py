"""Corpora: reading, caching, splitting and inspecting them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glocal._lazy import lazy_names

if TYPE_CHECKING:
    from glocal.data.builtin import BuiltinData, load_builtin
    from glocal.data.cache import cache_dir
    from glocal.data.corpus import Corpus, Document
    from glocal.data.duplicates import near_duplicate_key, near_duplicate_mask
    from glocal.data.formats.xmc import SparseFile, read_sparse
    from glocal.data.icd10cm import load_icd10cm
    from glocal.data.inspect import InspectReport, inspect_corpora
    from glocal.data.label_table import LabelEntry, LabelTable, read_label_table
    from glocal.data.readers import iter_documents, read_corpus
    from glocal.data.split import split_corpus
    from glocal.data.tokens import TokenStore, tokenise
    from glocal.data.writers import write_corpus

_MODULES = {
    "BuiltinData": "builtin",
    "Corpus": "corpus",
    "Document": "corpus",
    "InspectReport": "inspect",
    "LabelEntry": "label_table",
    "LabelTable": "label_table",
    "SparseFile": "formats.xmc",
    "TokenStore": "tokens",
    "cache_dir": "cache",
    "inspect_corpora": "inspect",
    "iter_documents": "readers",
    "load_builtin": "builtin",
    "load_icd10cm": "icd10cm",
    "near_duplicate_key": "duplicates",
    "near_duplicate_mask": "duplicates",
    "read_corpus": "readers",
    "read_label_table": "label_table",
    "read_sparse": "formats.xmc",
    "split_corpus": "split",
    "tokenise": "tokens",
    "write_corpus": "writers",
}

__all__ = [
    "BuiltinData",
    "Corpus",
    "Document",
    "InspectReport",
    "LabelEntry",
    "LabelTable",
    "SparseFile",
    "TokenStore",
    "cache_dir",
    "inspect_corpora",
    "iter_documents",
    "load_builtin",
    "load_icd10cm",
    "near_duplicate_key",
    "near_duplicate_mask",
    "read_corpus",
    "read_label_table",
    "read_sparse",
    "split_corpus",
    "tokenise",
    "write_corpus",
]

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
