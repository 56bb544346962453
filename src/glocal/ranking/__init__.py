"""Ranking: from the experts' logits to calibrated top-k predictions."""
