"""Metrics of extreme multi-label classification: pure functions on top-k arrays and CSR gold.

- predictions come as `indices int64 (n, k)`, best first, -1 for an empty slot; gold as a sparse
  matrix of documents × labels, whose columns beyond the label space can only be missed;
- never a dense documents × labels matrix: hits are found by a sorted search in the CSR;
- each ranking metric gives its value for every document (`DocumentScores`), from which the mean,
  the ratio of sums and the paired bootstrap are all computed;
- numpy and scipy only.

    gold = prepare_gold(matrix)
    judged = judge(indices, gold)
    precision_at_k(judged, 5).value
"""
