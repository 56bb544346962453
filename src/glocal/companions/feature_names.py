"""Names of the arrays that companions put into batches and experts read."""

from __future__ import annotations

__all__ = ["SCOPE", "SCOPE_WEIGHT", "SPARSE", "SPARSE_ODDS"]

SCOPE, SCOPE_WEIGHT = "scope", "scope_weight"  # teacher: labels voted for, strength of each vote
SPARSE, SPARSE_ODDS = "sparse", "sparse_odds"  # sparse model: best labels and their log-odds
