from glocal.data.corpus import Corpus
from glocal.data.duplicates import near_duplicate_key, near_duplicate_mask


def test_digits_case_and_what_follows_1500_characters_do_not_count():
    start = "Regulation 12/1999 " + "x" * 1481
    assert len(start) == 1500
    assert near_duplicate_key(start) == near_duplicate_key(start.replace("1999", "2001").upper())
    assert near_duplicate_key(start) == near_duplicate_key(start + " and more")
    assert near_duplicate_key(start) != near_duplicate_key("y" + start[1:])
    assert near_duplicate_key("in 99") != near_duplicate_key("in 999")


def test_mask():
    train = Corpus.from_texts(["Order 1 of May", "other"])
    corpus = Corpus.from_texts(["order 7 of may", "new", "OTHER"])
    assert near_duplicate_mask(corpus, train).tolist() == [True, False, True]
