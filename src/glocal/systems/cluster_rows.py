"""Parameters of label clusters, and the probability of a label inside its clusters."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from glocal.experts.expert import Expert, label_matrix, rows_at

_SMALLEST = 1e-30  # what the probability of a cluster is below 1, at least


class ClusterRows(nn.Module):
    """One expert's parameters of the clusters of one level, shaped as its label parameters.

    Args:
        expert: The expert.
        size: Number of clusters.
    """

    def __init__(self, expert: Expert, size: int) -> None:
        super().__init__()
        tensors = expert.label_tensors()
        self.tensors = nn.ParameterList(
            label_matrix(size, t.shape[1]) if t.dim() > 1 else nn.Parameter(torch.zeros(size))
            for t in tensors
        )
        groups = expert.parameter_groups()
        owners = {id(p): name for name, parameters in groups.items() for p in parameters}
        usual = "classifier" if "classifier" in groups else "queries"
        self.groups = [owners.get(id(tensor), usual) for tensor in tensors]

    def at(self, clusters: Tensor | None) -> tuple[Tensor, ...]:
        """Return the rows of clusters (B, C), or of all."""
        if clusters is None:
            return tuple(self.tensors)
        return tuple(rows_at(tensor, clusters) for tensor in self.tensors)


def joint_log_odds(clusters: Tensor, logits: Tensor) -> Tensor:
    """Return the log-odds of `p(clusters) · σ(logit)`, accurate for any size.

    Args:
        clusters: Log-probabilities of the labels' clusters.
        logits: Logits of the labels within them.
    """
    log_p = clusters + functional.logsigmoid(logits)
    # 1 − p_c σ(z) = (1 − p_c) + p_c (1 − σ(z)): both terms are accurate where p is close to 1.
    outside = torch.log(-torch.expm1(clusters.clamp(max=-_SMALLEST)))
    return log_p - torch.logaddexp(outside, clusters + functional.logsigmoid(-logits))
