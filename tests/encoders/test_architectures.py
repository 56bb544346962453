"""Encoders that differ in where [CLS] is, how positions count and what attention they have."""

import json
import shutil

import numpy as np
import pytest
import torch

from glocal.errors import ConfigError, ModelError
from glocal.predict.predictor import Predictor
from glocal.systems.system import LabelStatistics, TrainingPosition
from tests.collating import collate
from tests.encoders.folders import texts
from tests.tiny import build_system, tiny_corpus, tiny_recipe
from tests.train.runs import losses, train, train_in_processes, weights


@pytest.fixture
def folder(request):
    return request.getfixturevalue(request.param)


STATISTICS = LabelStatistics(np.array([3, 1, 2, 2]), 5)
both = pytest.mark.parametrize("folder", ["xlnet", "roberta", "mpnet"], indirect=True)


def build(*overrides):
    torch.manual_seed(0)
    recipe = tiny_recipe("glocalxml", *overrides)
    system, tokenizer = build_system(recipe, STATISTICS)
    with torch.no_grad():  # weights of a trained size, so that tokens take note of one another
        for parameter in system.encoder.parameters():
            parameter.mul_(10 if parameter.dim() > 1 else 1)
    return system.eval(), tokenizer


def batch_of(tokenizer, chosen, **options):
    tokens = [np.array(ids) for ids in tokenizer.encode_batch(chosen, 24)]
    facts = tokenizer.facts
    return collate(
        tokens, np.arange(len(chosen)), pad_id=facts.pad_id, left=facts.cls_last, **options
    )


@both
def test_the_company_a_text_is_in_does_not_change_its_scores(folder):
    system, tokenizer = build(f"encoder.name=random:{folder}", "candidates.mode=full")
    chosen = sorted(texts()[:12], key=len)
    together = system.topk(batch_of(tokenizer, chosen, multiple=16), 4).combined
    together = torch.zeros(12, 4).scatter(1, together.indices, together.scores)
    for row, text in enumerate(chosen):
        alone = system.topk(batch_of(tokenizer, [text]), 4).combined
        alone = torch.zeros(1, 4).scatter(1, alone.indices, alone.scores)
        torch.testing.assert_close(together[row], alone[0], rtol=0, atol=1e-5)


def test_xlnet_reads_its_document_from_the_last_token(xlnet):
    system, tokenizer = build(f"encoder.name=random:{xlnet}")
    batch = batch_of(tokenizer, ["the red cat", "the black dog a a a a a a a"])
    assert batch.padded
    cls = tokenizer.backend.token_to_id("<cls>")
    assert batch.input_ids[:, -1].tolist() == [cls, cls]
    features = system.encoder(batch)
    last = system.encoder.layers[-1]
    assert features.document(last).equal(features.hidden[last][:, -1])
    # The model itself, on the one unpadded text with its segments, says the same.
    ids = torch.tensor(tokenizer.encode_batch(["the red cat"], 24))
    segments = torch.zeros_like(ids)
    segments[:, -1] = 2
    states = system.encoder.model(input_ids=ids, token_type_ids=segments).last_hidden_state
    torch.testing.assert_close(features.document(last)[:1], states[:, -1], rtol=0, atol=1e-5)
    plain = system.encoder.model(input_ids=ids).last_hidden_state
    assert not torch.allclose(plain[:, -1], states[:, -1], atol=1e-3)


@both
def test_trains_and_loads(folder, tmp_path):
    recipe = tiny_recipe("glocalxml", f"encoder.name=random:{folder}", "train.epochs=8")
    train(recipe, tmp_path / "m")
    found = losses(tmp_path / "m")
    assert sum(found[-4:]) < sum(found[:4])
    predictor = Predictor.load(tmp_path / "m", device="cpu")
    first = predictor.predict(texts()[:4], k=3)
    again = Predictor.load(tmp_path / "m", device="cpu").predict(texts()[:4], k=3)
    np.testing.assert_array_equal(first.scores, again.scores)
    assert predictor.explain("the red cat", k=1)[0].spans


@pytest.mark.slow
@pytest.mark.dist
def test_weights_that_go_unused_do_not_stop_several_processes(xlnet, tmp_path):
    setting = f"encoder.name=random:{xlnet}"  # its mask embedding is never used
    train_in_processes(tmp_path / "two", 2, "glocalxml", setting)
    train(tiny_recipe("glocalxml", setting), tmp_path / "one", dev=tiny_corpus(9, seed=1))
    assert losses(tmp_path / "two") == pytest.approx(losses(tmp_path / "one"), rel=1e-4)


@both
@pytest.mark.parametrize("experts", [["A-1"], ["D-1", "A-0"], ["D-(1+0)"]])
def test_layers_above_the_highest_expert_are_cut_and_a_saved_model_knows(folder, experts, tmp_path):
    recipe = tiny_recipe(
        "glocalxml", f"encoder.name=random:{folder}", f"experts={json.dumps(experts)}",
        "candidates.mode=full", "train.epochs=1",
    )  # fmt: skip
    train(recipe, tmp_path / "m")
    names = [name for name in weights(tmp_path / "m") if ".layer." in name]
    assert {name.split(".layer.")[1].split(".")[0] for name in names} == {"0"}
    predictor = Predictor.load(tmp_path / "m", device="cpu")
    assert predictor.system.encoder.total_layers == (3 if folder.name == "xlnet" else 2)
    assert predictor.predict(["the cat"], k=2).indices.shape == (1, 2)


def test_the_last_layer_is_that_of_the_encoder_before_it_was_cut(roberta, tmp_path):
    recipe = tiny_recipe("glocalxml", f"encoder.name=random:{roberta}", 'experts=["D-middle"]')
    train(recipe, tmp_path / "m")
    assert Predictor.load(tmp_path / "m", device="cpu").system.encoder.layers == [1]


@both
def test_bf16_throughout_is_close_to_fp32(folder):
    system, tokenizer = build(f"encoder.name=random:{folder}")
    batch = batch_of(tokenizer, texts()[:4])
    exact = system.encoder(batch)
    system.encoder.compute_dtype = torch.bfloat16
    rounded = system.encoder(batch)
    for layer, states in exact.hidden.items():
        assert rounded.hidden[layer].dtype == torch.bfloat16
        real = states if exact.mask is None else states[exact.mask]
        other = rounded.hidden[layer] if exact.mask is None else rounded.hidden[layer][exact.mask]
        assert (other.float() - real).abs().mean() < 0.05


def test_mean_pooling_is_over_the_real_tokens():
    system, tokenizer = build("encoder.pooling=mean")
    batch = batch_of(tokenizer, ["the red cat", "an owl"])
    features = system.encoder(batch)
    states, last = features.hidden[2], features.document(2)
    for row, length in enumerate(batch.attention_mask.sum(1).tolist()):
        torch.testing.assert_close(last[row], states[row, :length].mean(0), rtol=0, atol=1e-5)
    alone = system.encoder(batch_of(tokenizer, ["an owl"]))
    torch.testing.assert_close(alone.document(2)[0], last[1], rtol=0, atol=1e-5)


def test_a_frozen_encoder_keeps_its_weights(tmp_path):
    recipe = tiny_recipe("glocalxml", "encoder.freeze=true", "train.weight_decay=0.5")
    train(recipe, tmp_path / "m")
    train(tiny_recipe("glocalxml", "train.epochs=1"), tmp_path / "free")
    found, free = weights(tmp_path / "m"), weights(tmp_path / "free")
    torch.manual_seed(0)  # as a run of seed 0 starts
    start, _ = build_system(recipe, LabelStatistics(np.ones(15), 64))
    encoder = {f"encoder.{n}": t for n, t in start.encoder.state_dict().items()}
    assert all(found[name].equal(tensor) for name, tensor in encoder.items())
    assert not all(free[name].equal(tensor) for name, tensor in encoder.items())
    assert not found["experts.0.weight"].equal(start.state_dict()["experts.0.weight"])


def test_a_frozen_encoder_builds_no_graph():
    system, tokenizer = build("encoder.freeze=true")
    features = system.train().features(batch_of(tokenizer, ["the red cat"]))
    assert not features.hidden[2].requires_grad


def test_gradient_checkpointing_gives_the_same_gradients(roberta):
    found = []
    for setting in ("false", "true"):
        system, tokenizer = build(
            f"encoder.name=random:{roberta}", f"encoder.gradient_checkpointing={setting}"
        )
        system.train()
        if setting == "true":
            assert system.encoder.model.is_gradient_checkpointing
        system.training_step(batch_of(tokenizer, texts()[:6]), TrainingPosition(0, 1)).backward()
        found.append({n: p.grad for n, p in system.named_parameters() if p.grad is not None})
    plain, checkpointed = found
    assert plain.keys() == checkpointed.keys()
    assert any(".layer.0." in name for name in plain)
    for name, grad in plain.items():
        torch.testing.assert_close(checkpointed[name], grad, rtol=1e-5, atol=1e-6)


def test_gradient_checkpointing_that_an_encoder_cannot_do(xlnet):
    with pytest.raises(ConfigError, match=r"encoder\.gradient_checkpointing.*xlnet"):
        build(f"encoder.name=random:{xlnet}", "encoder.gradient_checkpointing=true")


def test_texts_longer_than_the_positions_are_refused_beforehand(roberta):
    build(f"encoder.name=random:{roberta}", "encoder.max_length=40")
    with pytest.raises(ConfigError, match=r"encoder\.max_length' is 41.*at most 40 tokens"):
        build(f"encoder.name=random:{roberta}", "encoder.max_length=41")


def test_a_full_length_text_uses_every_position(roberta):
    system, tokenizer = build(f"encoder.name=random:{roberta}", "encoder.max_length=40")
    tokens = [np.array(ids) for ids in tokenizer.encode_batch(["the red cat " * 50], 40)]
    assert len(tokens[0]) == 40
    assert len(system.topk(collate(tokens, np.arange(1), pad_id=1, left=False), 2).combined[0])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("random:{}/absent", "absent"),
        ("{}/absent", "cannot load the encoder"),
        ("{}", "tokenizer"),
    ],
)
def test_an_encoder_that_is_not_there_is_one_clear_error(tmp_path, name, words):
    with pytest.raises(ModelError, match=words):
        build(f"encoder.name={name.format(tmp_path)}")


def test_damaged_weights_are_one_clear_error(roberta, tmp_path):
    copy = shutil.copytree(roberta, tmp_path / "copy")
    (copy / "model.safetensors").write_bytes(b"half of it")
    with pytest.raises(ModelError, match="cannot load the encoder"):
        build(f"encoder.name={copy}")


def test_weights_are_loaded_in_single_precision(roberta, tmp_path):
    system, _ = build(f"encoder.name=random:{roberta}", 'experts=["D-last"]')
    copy = shutil.copytree(roberta, tmp_path / "copy")
    system.encoder.model.half().save_pretrained(copy)
    loaded, _ = build_system(tiny_recipe("glocalxml", f"encoder.name={copy}"), STATISTICS)
    ours, theirs = loaded.encoder.state_dict(), system.encoder.state_dict()
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        assert tensor.dtype == torch.float32
        assert tensor.half().equal(theirs[name])


@pytest.mark.parametrize("folder", ["roberta", "mpnet"], indirect=True)
def test_attention_weights_without_dropout(folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "copy")
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "attention_probs_dropout_prob": 0.3}))
    rates = {}
    for setting in ("true", "false"):
        random, _ = build(f"encoder.name=random:{copy}", f"encoder.attention_dropout={setting}")
        weights = copy / "model.safetensors"
        if not weights.exists():
            random.encoder.model.save_pretrained(tmp_path / "weights")
            shutil.copy(tmp_path / "weights" / weights.name, weights)
        loaded, _ = build(f"encoder.name={copy}", f"encoder.attention_dropout={setting}")
        rates[setting] = [
            module.p
            for system in (random, loaded)
            for module in system.encoder.modules()
            if isinstance(module, torch.nn.Dropout) and module.p
        ]
    assert rates == {"true": [0.3] * 4, "false": []}


def test_a_configuration_without_a_type_or_of_an_unknown_one(roberta, tmp_path):
    (tmp_path / "tokenizer.json").write_bytes((roberta / "tokenizer.json").read_bytes())
    for config, words in ({}, "model_type"), ({"model_type": "nonesuch"}, "nonesuch"):
        (tmp_path / "config.json").write_text(json.dumps(config))
        with pytest.raises(ModelError, match=words):
            build(f"encoder.name=random:{tmp_path}")
