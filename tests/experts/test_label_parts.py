"""The tensors of experts that a run may divide between processes by labels."""

import numpy as np
import pytest
import torch

from glocal.label_slice import LabelSlice
from glocal.systems.system import LabelStatistics
from tests.tiny import build_system, tiny_recipe

L = 7
EXPERTS = 'experts=["D-last", "A-1", "S"]'


def experts_of(*overrides, **options):
    statistics = LabelStatistics(np.arange(1, L + 1), 40, **options)
    system, _ = build_system(tiny_recipe("glocalxml", EXPERTS, *overrides), statistics)
    return {expert.name: expert for expert in system.experts}


@pytest.mark.parametrize("overrides", [(), ("document.bias=false", "attention.bias=false")])
def test_parts_are_the_tensors_with_a_row_for_each_label(overrides):
    for expert in experts_of(*overrides).values():
        parts = [
            tensor
            for part in expert.label_parts() or ()
            for name in part.names
            if (tensor := getattr(part.module, name)) is not None
        ]
        assert {len(tensor) for tensor in parts} == (set() if expert.name == "S" else {L})
        own = {id(p) for p in expert.parameters() if p.ndim and len(p) == L}
        assert own <= {id(tensor) for tensor in parts}


def test_label_clusters_in_a_mixture_are_not_divided():
    experts = experts_of("document.head=aplc")
    assert experts["D-last"].label_parts() is None
    assert experts["A-1"].label_parts() is not None


def test_a_tie_to_label_texts_is_divided_with_its_expert():
    texts = [f"label {number}" for number in range(L)]
    experts = experts_of("labels.text=tied", texts=texts)
    labels = LabelSlice()
    for name in ("D-last", "A-1"):
        expert = experts[name]
        own, tie = expert.label_parts()
        assert own.module is expert
        assert tie.module is expert.tie
        assert tie.names == ("rows", "share", "rarest", "offset")
        expert.use_slice(labels)
        assert expert.tie.labels is labels
    plain = experts_of()
    for expert in plain.values():
        expert.use_slice(labels)  # nothing to tell it
    assert torch.is_tensor(plain["D-last"].weight)
