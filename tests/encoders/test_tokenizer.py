import json

import pytest
from tokenizers import Tokenizer, models, processors

from glocal.encoders.loading import load_pretrained
from glocal.encoders.tokenizer import TextTokenizer
from glocal.errors import ModelError
from tests.tiny import tiny_recipe

LONG = "the red cat " * 50


def test_xlnet_has_its_cls_at_the_end_in_a_segment_of_its_own(xlnet):
    tokenizer = TextTokenizer.load(xlnet)
    assert tokenizer.facts.cls_last
    assert tokenizer.facts.cls_type_id == 2
    assert tokenizer.facts.pad_id == tokenizer.backend.token_to_id("<pad>")


def test_roberta_has_its_cls_at_the_front(roberta):
    tokenizer = TextTokenizer.load(roberta)
    assert tokenizer.facts_mapping() == {"pad_id": 1, "cls_last": False, "cls_type_id": 0}


@pytest.mark.parametrize("max_length", [3, 4, 9, 24])
def test_truncation_keeps_the_special_tokens(xlnet, roberta, max_length):
    last = TextTokenizer.load(xlnet)
    (ids,) = last.encode_batch([LONG], max_length)
    special = [last.backend.token_to_id(token) for token in ("<sep>", "<cls>")]
    assert len(ids) == max_length
    assert ids[-2:] == special
    assert not set(special) & set(ids[:-2])
    first = TextTokenizer.load(roberta)
    (ids,) = first.encode_batch([LONG], max_length)
    assert len(ids) == max_length
    assert [ids[0], ids[-1]] == [first.backend.token_to_id(token) for token in ("<s>", "</s>")]


def test_one_length_does_not_stick(xlnet):
    tokenizer = TextTokenizer.load(xlnet)
    short = tokenizer.encode_batch([LONG], 5)
    assert len(tokenizer.encode_batch([LONG], 40)[0]) == 40
    assert tokenizer.encode_batch([LONG], 5) == short
    assert tokenizer.encode_with_offsets(LONG, 5)[0] == short[0]


def test_empty_texts_and_no_texts(xlnet):
    tokenizer = TextTokenizer.load(xlnet)
    empty, _ = tokenizer.encode_batch(["", "the cat"], 24)
    assert len(empty) == 2
    assert tokenizer.encode_batch([], 24) == []


def test_saved_and_loaded_gives_the_same_ids_whatever_was_cut_before(xlnet, tmp_path):
    tokenizer = TextTokenizer.load(xlnet)
    expected = tokenizer.encode_batch([LONG], 30)
    tokenizer.encode_batch([LONG], 4)
    tokenizer.save(tmp_path / "tokenizer.json")
    loaded = TextTokenizer.load(tmp_path, tokenizer.facts_mapping())
    assert loaded.encode_batch([LONG], 30) == expected
    assert loaded.facts == tokenizer.facts
    assert loaded.fingerprint == tokenizer.fingerprint


def test_fingerprints_tell_tokenizers_apart(xlnet, roberta):
    first, second = TextTokenizer.load(xlnet), TextTokenizer.load(roberta)
    assert first.fingerprint != second.fingerprint


def test_a_damaged_file_is_named(tmp_path):
    (tmp_path / "tokenizer.json").write_text('{"version": "1.0", ')
    with pytest.raises(ModelError, match=r"tokenizer\.json"):
        TextTokenizer.load(tmp_path)


def test_offsets_are_characters_of_the_text():
    _, tokenizer = load_pretrained(tiny_recipe("glocalxml").encoder)
    text = "Ünïcode 🐈 CAT"
    ids, offsets, word_ids = tokenizer.encode_with_offsets(text, 40)
    assert ids == tokenizer.encode_batch([text], 40)[0]
    found = {text[start:end] for start, end in offsets if end > start}
    assert {"Ü", "n", "ï", "🐈", "C", "A", "T"} <= found
    assert word_ids[0] is None
    assert word_ids[-1] is None
    assert len(ids) == len(offsets) == len(word_ids)


def with_two_pad_tokens():
    """A tokenizer of mpnet's kind: `[PAD]` is in the vocabulary, `<pad>` is the one declared."""
    words = ["<s>", "<pad>", "</s>", "<unk>", "[PAD]", "the"]
    backend = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return backend


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("tokenizer_config.json", {"pad_token": "<pad>"}),
        ("tokenizer_config.json", {"pad_token": {"content": "<pad>", "lstrip": False}}),
        ("special_tokens_map.json", {"pad_token": "<pad>"}),
        ("tokenizer.json", None),
    ],
)
def test_padding_is_the_declared_token(tmp_path, file, content):
    backend = with_two_pad_tokens()
    if content is None:
        backend.enable_padding(pad_id=1, pad_token="<pad>")
    else:
        (tmp_path / file).write_text(json.dumps(content))
    backend.save(str(tmp_path / "tokenizer.json"))
    assert TextTokenizer.load(tmp_path).facts.pad_id == 1


@pytest.mark.parametrize("content", ["[", "[]", '{"pad_token": null}', '{"pad_token": "<no>"}'])
def test_without_a_declared_token_padding_is_a_usual_one(tmp_path, content):
    with_two_pad_tokens().save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(content)
    assert TextTokenizer.load(tmp_path).facts.pad_id == 4
