"""Systems built without random weights."""

import torch
from torch import nn

from glocal.systems.undrawn_weights import UndrawnWeights


def test_nothing_is_drawn_and_everything_else_happens():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    with UndrawnWeights():
        layers = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 3), nn.LSTM(3, 2), nn.LayerNorm(3))
        nn.init.trunc_normal_(layers[1].weight)
        nn.init.xavier_uniform_(tensor=layers[1].weight)
        filled = torch.full((3,), 2.0)
        torch.empty(4).normal_()
    assert torch.equal(torch.get_rng_state(), before)
    assert filled.tolist() == [2.0] * 3
    assert not layers[0].weight.any()
    assert not layers[1].weight.any()
    assert layers[3].weight.tolist() == [1.0] * 3
    torch.empty(4).normal_()
    assert not torch.equal(torch.get_rng_state(), before)
