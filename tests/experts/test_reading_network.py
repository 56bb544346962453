"""The blocks of TReaderXML's network against the paper's equations, and what masks must do."""

import pytest
import torch

from glocal.config.reader_configurations import CONFIGURATIONS
from glocal.experts.reading_network import DualNetwork, Reading, SelfAttention, masked_mean

WIDTH, HEADS, LENGTH = 12, 4, 7


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def sequence(length=LENGTH, documents=3):
    return torch.randn(documents, length, WIDTH)


def by_equations(block, states):
    """Eq. 3–13 for one document (T, H), head by head and place by place."""
    queries, keys, values = (states @ w.T for w in block.project.weight.chunk(3))
    size = WIDTH // HEADS
    heads = []
    for head in range(HEADS):
        part = slice(head * size, (head + 1) * size)
        rows = []
        for place in range(len(states)):
            seen = slice(0, place + 1) if block.causal else slice(None)
            scores = keys[seen, part] @ queries[place, part] / size**0.5
            rows.append(scores.softmax(0) @ values[seen, part])
        heads.append(torch.stack(rows))
    return torch.tanh(torch.cat(heads, dim=1) @ block.output.weight.T)


def pad(states, before, after, *, filler=9.0):
    """The same sequences with rubbish around them, and their mask."""
    documents, length, _ = states.shape
    left = torch.full((documents, before, WIDTH), filler)
    right = torch.full((documents, after, WIDTH), -filler)
    mask = torch.zeros(documents, before + length + after, dtype=torch.bool)
    mask[:, before : before + length] = True
    return torch.cat([left, states, right], dim=1), mask


@pytest.mark.parametrize("causal", [True, False])
def test_attention_follows_the_equations(causal):
    block, states = SelfAttention(WIDTH, HEADS, causal=causal), sequence()
    expected = torch.stack([by_equations(block, document) for document in states])
    torch.testing.assert_close(block(states, None), expected)
    whole = torch.ones(3, LENGTH, dtype=torch.bool)
    torch.testing.assert_close(block(states, whole), expected)


@pytest.mark.parametrize("masked", [True, False])
def test_a_causal_attention_sees_nothing_that_comes_later(masked):
    block, states = SelfAttention(WIDTH, HEADS, causal=True), sequence()
    mask = torch.ones(3, LENGTH, dtype=torch.bool) if masked else None
    before = block(states, mask)
    changed = states.clone()
    changed[:, 4] += 5.0
    after = block(changed, mask)
    torch.testing.assert_close(after[:, :4], before[:, :4])
    assert ((after - before)[:, 4:].abs().amax(2) > 1e-4).all()


def test_a_full_attention_sees_everything():
    block, states = SelfAttention(WIDTH, HEADS, causal=False), sequence()
    changed = states.clone()
    changed[:, 4] += 5.0
    assert ((block(changed, None) - block(states, None)).abs().amax(2) > 1e-4).all()


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("before", "after"), [(0, 3), (2, 0), (2, 3)])
def test_padding_on_either_side_is_not_seen(causal, before, after):
    block, states = SelfAttention(WIDTH, HEADS, causal=causal), sequence()
    found = block(*pad(states, before, after))
    assert found.isfinite().all()
    torch.testing.assert_close(found[:, before : before + LENGTH], block(states, None))


@pytest.mark.parametrize("causal", [True, False])
def test_nothing_but_padding_is_finite_in_value_and_gradient(causal):
    block, states = SelfAttention(WIDTH, HEADS, causal=causal), sequence().requires_grad_()
    found = block(states, torch.zeros(3, LENGTH, dtype=torch.bool))
    found.sum().backward()
    assert found.isfinite().all()
    assert states.grad.isfinite().all()
    assert all(p.grad.isfinite().all() for p in block.parameters())


@pytest.mark.parametrize("number", CONFIGURATIONS)
def test_readings_are_those_of_table_3(number):
    configuration = CONFIGURATIONS[number]
    reading, states = Reading(WIDTH, HEADS, configuration), sequence(documents=1)
    blocks, document = list(reading.attentions), states[0]
    apply = by_equations
    expected = {
        0: lambda: document,
        1: lambda: document,
        2: lambda: document + apply(blocks[0], document),
        3: lambda: document + apply(blocks[0], document),
        4: lambda: apply(blocks[1], document + apply(blocks[0], document)),
        5: lambda: apply(blocks[1], apply(blocks[0], document)),
        6: lambda: apply(blocks[1], document + apply(blocks[0], document)),
        7: lambda: apply(blocks[1], document + apply(blocks[0], document)),
    }[number]()
    torch.testing.assert_close(reading(states, None)[0], expected)
    causal = {2: [1], 3: [0], 4: [0, 1], 5: [1, 0], 6: [1, 0], 7: [1, 0]}
    assert [block.causal for block in blocks] == causal.get(number, [])
    assert configuration.teacher == (number not in (0, 7))


def network(number=6, **options):
    return DualNetwork(WIDTH, HEADS, CONFIGURATIONS[number], bottleneck=5, **options)


def test_text_and_teacher_are_read_apart_and_then_together_teacher_first():
    dual, text, teacher = network(), sequence(documents=1), sequence(3, documents=1)
    mask = torch.ones(1, 3, dtype=torch.bool)
    read = [
        by_equations(
            branch.attentions[1],
            states[0] + by_equations(branch.attentions[0], states[0]),
        )
        for branch, states in ((dual.teacher, teacher), (dual.text, text))
    ]
    joined = by_equations(dual.interaction, torch.cat(read))
    # Eq. 17 for every place, then the mean; the network takes the mean first.
    expected = (joined @ dual.bottleneck.weight.T).mean(0)
    torch.testing.assert_close(dual(text, None, teacher, mask)[0], expected)
    # Other means of the same places, and a residual around the last attention.
    for pooling, weights in (
        ("text", [0] * 3 + [1 / 7] * 7),
        ("halves", [1 / 6] * 3 + [1 / 14] * 7),
    ):
        dual.pooling, dual.residual = pooling, False
        expected = torch.tensor(weights) @ joined @ dual.bottleneck.weight.T
        torch.testing.assert_close(dual(text, None, teacher, mask)[0], expected)
    dual.pooling, dual.residual = "all", True
    expected = ((joined + torch.cat(read)) @ dual.bottleneck.weight.T).mean(0)
    torch.testing.assert_close(dual(text, None, teacher, mask)[0], expected)


@pytest.mark.parametrize("number", [0, 1, 4, 6, 7])
def test_with_residuals_the_network_starts_as_the_mean_word(number):
    dual = DualNetwork(
        WIDTH, HEADS, CONFIGURATIONS[number], bottleneck=WIDTH, pooling="text", residual=True
    )
    text, mask = pad(sequence(), 0, 2)
    taught = torch.ones(3, 4, dtype=torch.bool)
    torch.testing.assert_close(dual(text, mask, sequence(4), taught), masked_mean(text, mask))


def test_a_residual_the_paper_leaves_out_of_a_configuration_stays_out():
    reading = network(5, residual=True).text
    first, second = reading.attentions
    assert first.output.weight.any()
    text = sequence()
    torch.testing.assert_close(reading(text, None), first(text, None))  # the second is silent
    torch.nn.init.ones_(second.output.weight)
    read = first(text, None)
    torch.testing.assert_close(reading(text, None), read + second(read, None))


@pytest.mark.parametrize("number", [1, 6])
@pytest.mark.parametrize("pooling", ["all", "text", "halves"])
@pytest.mark.parametrize(("before", "after"), [(0, 4), (3, 0)])
def test_padding_of_text_or_teacher_changes_nothing(number, pooling, before, after):
    dual, text, teacher = network(number, pooling=pooling), sequence(), sequence(4)
    taught = torch.ones(3, 4, dtype=torch.bool)
    expected = dual(text, None, teacher, taught)
    padded_text, mask = pad(text, before, after)
    padded_teacher, teacher_mask = pad(teacher, 0, 2)
    torch.testing.assert_close(dual(padded_text, mask, teacher, taught), expected)
    torch.testing.assert_close(dual(padded_text, mask, padded_teacher, teacher_mask), expected)


@pytest.mark.parametrize("pooling", ["all", "text", "halves"])
def test_without_a_scope_the_text_is_read_alone(pooling):
    taught, alone = network(6, pooling=pooling), network(7, pooling=pooling)
    alone.load_state_dict(
        {name: weight for name, weight in taught.state_dict().items() if "teacher" not in name}
    )
    text, teacher = sequence(), sequence(4)
    found = taught(text, None, teacher, torch.zeros(3, 4, dtype=torch.bool))
    torch.testing.assert_close(found, alone(text, None))


def test_a_mean_leaves_padding_out():
    states, mask = torch.arange(12.0).reshape(2, 3, 2), torch.tensor([[1, 1, 0], [0, 0, 0]]).bool()
    assert masked_mean(states, mask).tolist() == [[1.0, 2.0], [0.0, 0.0]]
    assert masked_mean(states, None).tolist() == [[2.0, 3.0], [8.0, 9.0]]


def test_attentions_start_by_xavier_each_projection_alone():
    block = SelfAttention(WIDTH, HEADS, causal=True)
    bound = (6 / (WIDTH + WIDTH)) ** 0.5
    for weight in (*block.project.weight.chunk(3), block.output.weight):
        assert weight.shape == (WIDTH, WIDTH)
        assert 0.9 * bound < weight.abs().max() <= bound
    assert block.project.bias is None
    assert block.output.bias is None
    assert not SelfAttention(WIDTH, HEADS, causal=True, silent=True).output.weight.any()


def test_the_paper_pools_every_place_without_a_last_residual():
    dual = network()
    assert (dual.pooling, dual.residual) == ("all", False)
    assert dual.bottleneck.bias is None
    assert dual.interaction.causal
    assert network(7).teacher is None
    narrow = DualNetwork(WIDTH, HEADS, CONFIGURATIONS[6], bottleneck=5, residual=True)
    assert narrow.bottleneck.weight.shape == (5, WIDTH)


def test_the_mean_of_one_place_is_that_place():
    states, mask = torch.tensor([[[5.0, 7.0], [9.0, 9.0]]]), torch.tensor([[True, False]])
    assert masked_mean(states, mask).tolist() == [[5.0, 7.0]]


def test_residuals_of_text_and_teacher_start_silent_if_they_are_asked_for():
    asked, plain = network(4, residual=True), network(4)
    for branch in (asked.text, asked.teacher):
        assert branch.added == [True, True]
        assert not any(block.output.weight.any() for block in branch.attentions)
    for branch in (plain.text, plain.teacher):
        assert branch.added == [True, False]
        assert all(block.output.weight.any() for block in branch.attentions)
    assert not asked.interaction.output.weight.any()
    assert plain.interaction.output.weight.any()


def test_the_bottleneck_starts_as_the_identity_with_residuals_alone():
    def bottleneck(residual):
        dual = DualNetwork(WIDTH, HEADS, CONFIGURATIONS[6], bottleneck=WIDTH, residual=residual)
        return dual.bottleneck.weight

    assert torch.equal(bottleneck(True), torch.eye(WIDTH))
    assert not torch.equal(bottleneck(False), torch.eye(WIDTH))
