"""The BiLSTM of AttentionXML."""

import pytest
import torch
from torch import nn

from glocal.encoders.lstm_encoder import BiLstmModel


def test_states_are_those_of_a_bidirectional_lstm_whatever_the_padding():
    torch.manual_seed(0)
    model = BiLstmModel(30, 8, 5, dropout=0.5).eval()
    naive = nn.LSTM(8, 5, batch_first=True, bidirectional=True)
    for name, suffix in (("forwards", ""), ("backwards", "_reverse")):
        for key, value in model.directions[name].named_parameters():
            getattr(naive, key + suffix).data.copy_(value.data)
    texts = [torch.randint(0, 30, (length,)) for length in (7, 3, 1)]
    ids = nn.utils.rnn.pad_sequence(texts, batch_first=True, padding_value=29)
    mask = torch.arange(7) < torch.tensor([[7], [3], [1]])
    words, states = model(input_ids=ids, attention_mask=mask.long()).hidden_states
    assert words.shape == (3, 7, 8)
    for row, text in enumerate(texts):
        expected, _ = naive(model.table(text)[None])
        torch.testing.assert_close(states[row, : len(text)], expected[0])
    alone = model(input_ids=texts[1][None]).hidden_states[1]
    torch.testing.assert_close(states[1, :3], alone[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_may_be_replaced_for_a_call(dtype):
    torch.manual_seed(0)
    model = BiLstmModel(30, 8, 5, dropout=0.0)
    ids = torch.randint(0, 30, (2, 6))
    weights = {name: (2 * p).to(dtype) for name, p in model.named_parameters()}
    replaced = torch.func.functional_call(model, weights, kwargs={"input_ids": ids})
    assert replaced.hidden_states[1].dtype is dtype
    own = model(input_ids=ids).hidden_states[1]
    assert not torch.allclose(replaced.hidden_states[1].float(), own, atol=1e-2)
