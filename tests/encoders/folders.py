"""Encoder folders of the architectures people use, tiny and with random weights."""

import json

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from tests.tiny import tiny_corpus

XLNET = {"model_type": "xlnet", "d_model": 32, "n_layer": 3, "n_head": 2, "d_inner": 64}
ROBERTA = {
    "model_type": "roberta",
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 42,  # two of them are not for tokens
    "type_vocab_size": 1,
    "pad_token_id": 1,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
MPNET = {
    "model_type": "mpnet",
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 200,  # further apart than MPNet tells distances from one another
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}


def texts():
    return [document.text for document in tiny_corpus(64).documents()]


def xlnet_folder(path):
    """SentencePiece-like pieces; `<sep> <cls>` at the end, [CLS] in a segment of its own."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    specials = ["<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>"]
    trainer = trainers.UnigramTrainer(
        vocab_size=90, special_tokens=specials, unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(texts(), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A:0 <sep>:0 <cls>:2", special_tokens=_ids(tokenizer, "<sep>", "<cls>")
    )
    return _write(path, tokenizer, {**XLNET, "dropout": 0.0})


def roberta_folder(path):
    """Byte-level pairs; `<s> … </s>`, padding token 1."""
    return _write(path, _pairs(), ROBERTA)


def mpnet_folder(path):
    """RoBERTa's tokens in front of relative positions."""
    return _write(path, _pairs(), MPNET)


def _pairs():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts(), trainer)
    tokenizer.post_processor = processors.RobertaProcessing(
        ("</s>", tokenizer.token_to_id("</s>")), ("<s>", tokenizer.token_to_id("<s>"))
    )
    return tokenizer


def _ids(tokenizer, *tokens):
    return [(token, tokenizer.token_to_id(token)) for token in tokens]


def _write(path, tokenizer, config):
    path.mkdir(parents=True)
    tokenizer.save(str(path / "tokenizer.json"))
    config = {**config, "vocab_size": tokenizer.get_vocab_size()}
    (path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return path
