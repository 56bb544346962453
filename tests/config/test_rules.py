"""Rules about several settings: each fails before texts are read, all are reported at once."""

import pytest

from glocal.config import load_recipe, recipe_names
from glocal.config.encoder_facts import EncoderFacts
from glocal.config.resolve import (
    BF16_LABELS_FROM,
    CheckedRecipe,
    ResolvedRecipe,
    check,
    resolve,
    resolved_from_mapping,
)
from glocal.config.rules import DataFacts, data_problems, partition_problems, recipe_problems
from glocal.config.toml import recipe_to_mapping
from glocal.data.corpus import Corpus
from glocal.errors import ConfigError, MissingExtraError, ModelError
from glocal.train.run import fit
from tests.tiny import tiny_corpus, tiny_recipe
from tests.train.runs import Recorder, train

FACTS = EncoderFacts(
    n_layers=6, hidden_size=384, max_tokens=512, special_tokens=2, can_checkpoint=True
)
EXPERTS = 'experts=["D-last", "A-1"]'
CLUSTERS = "candidates.mode=clusters"

WRONG = [
    ("glocalxml", ["system=glocalxlm"], "did you mean 'glocalxml'"),
    ("treaderxml", ['experts=["D-last"]'], "treaderxml needs an R-n expert"),
    ("aplc", [EXPERTS], "one document expert"),
    ("glocalxml", ['experts=["D-last", "A-7"]'], "layer 7 does not exist"),
    ("glocalxml", ['experts=["X-1"]'], "'X-1' is not of the form"),
    ("glocalxml", ['experts=["S"]'], "is read by none of the experts S"),
    ("glocalxml", ["encoder.name=none"], "the experts D-last, A-1 read an encoder"),
    ("glocalxml", ["encoder.max_length=513"], "reads at most 512 tokens"),
    ("glocalxml", ["train.metric=p5"], "'train.metric': .*P@5"),
    ("glocalxml", ["train.budget=soon"], "'soon' is not a time"),
    ("glocalxml", ["train.accumulation=65"], "more than the 64 texts of a batch"),
    ("glocalxml", ["loss.bias_init=low"], "must be prior or a number"),
    ("glocalxml", ["loss.bias_init=nan"], "must be prior or a number"),
    ("glocalxml", ["loss.kind=collaborative", "candidates.mode=shortlist"], "candidates.mode=full"),
    ("glocalxml", ["loss.kind=collaborative", "document.head=aplc"], "document.head=flat"),
    ("glocalxml", ['experts=["A-1"]', "candidates.mode=shortlist"], "needs a document expert"),
    ("glocalxml", [CLUSTERS, "candidates.clusters=6"], "is not a power of two, such as 8"),
    ("glocalxml", [CLUSTERS, "candidates.branching=3"], "is not a power of two, such as 4"),
    ("glocalxml", [CLUSTERS, "document.head=aplc"], "needs a vector for each label"),
    ("glocalxml", [CLUSTERS, 'experts=["T"]'], "trained to pick clusters"),
    ("glocalxml", [CLUSTERS, "loss.kind=collaborative"], "candidates.mode=full"),
    ("glocalxml", [CLUSTERS, "train.label_precision=bf16"], "candidates.mode=full"),
    ("treaderxml", [CLUSTERS], "reader.prior=false"),
    ("attentionxml", ["teacher.vectors=encoder"], "has none; set it to corpus"),
    ("attentionxml", ['experts=["A-0"]'], "name layer 1"),
    ("attentionxml", ["encoder.document_length=600"], "have no window"),
    ("aplc", ["train.members=2"], "which aplc-xlnet does not have"),
    ("fast", ["train.members=2"], r"nothing in the experts \['S'\] depends on a seed"),
    ("glocalxml", ["labels.text=tied", "document.head=aplc"], "label clusters have none"),
    ("aplc", ["labels.text=start"], "label clusters have none"),
    ("glocalxml", ["labels.text=tied", "attention.query_init=tokens"], "both say where"),
    ("treaderxml", ["reader.heads=5"], "does not divide the encoder's width of 384"),
    ("treaderxml", ["document.head=aplc"], "'reader.prior' = true needs a vector"),
    ("treaderxml", ["teacher.index=ivf"], "set teacher.index=exact"),
    ("fast", ['experts=["S", "T"]'], "set teacher.vectors=corpus"),
    ("aplc", ["aplc.partition=[0.5, 0.6]"], "sums to 1.1"),
    ("glocalxml", ["document.head=aplc", "aplc.partition=[1.5, -0.5]"], "must be above 0"),
    ("glocalxml", ["document.reads=chunks"], "set encoder.document_length"),
    ("glocalxml", ["encoder.document_length=60"], "is below 'encoder.max_length'"),
    ("glocalxml", ["encoder.document_length=600", "encoder.overlap=254"], "must be below 254"),
    ("me-xml-1", ["encoder.document_length=600"], r"none of the experts \['D-last'\]"),
    ("treaderxml", ["encoder.document_length=600", "reader.encode=static"], "have no window"),
]


@pytest.mark.parametrize(("name", "overrides", "message"), WRONG)
def test_each_rule(name, overrides, message):
    with pytest.raises(ConfigError, match=message):
        check(load_recipe(name, overrides), lambda _: FACTS)


@pytest.mark.parametrize("name", recipe_names())
def test_every_built_in_recipe_follows_the_rules(name):
    recipe = load_recipe(name)
    wide = EncoderFacts(n_layers=12, hidden_size=768 if recipe.reader.encode == "hidden" else 300)
    assert check(recipe, lambda _: wide).written is recipe


def test_limits_of_the_encoder():
    recipe = load_recipe("glocalxml", ["encoder.gradient_checkpointing=true", 'experts=["A-1"]'])
    facts = EncoderFacts(n_layers=6, hidden_size=384, can_be_cut=False)
    assert [problem.split(";")[0] for problem in recipe_problems(recipe, facts)] == [
        "'encoder.gradient_checkpointing' = true, but 'minilm' does not support it",
        "the layers of 'minilm' were not found, so it cannot be cut at layer 1",
    ]


def test_problems_of_different_rules_come_together_with_a_missing_encoder():
    recipe = load_recipe("glocalxml", ["train.metric=p5", "loss.bias_init=x", "train.budget=soon"])

    def missing(_):
        raise ModelError("cannot load the encoder 'x'")

    with pytest.raises(ConfigError) as caught:
        check(recipe, missing)
    assert len(caught.value.problems) == 4
    assert caught.value.problems[0] == "cannot load the encoder 'x'"
    with pytest.raises(ModelError, match="cannot load the encoder 'x'"):
        check(load_recipe("glocalxml"), missing)


def test_a_missing_encoder_may_be_dropped_where_experts_are_open():
    def missing(_):
        raise MissingExtraError("pip install it")

    assert check(load_recipe("auto"), missing).missing_encoder == "pip install it"
    with pytest.raises(MissingExtraError):
        check(load_recipe("balanced"), missing)


def test_labels_without_texts_need_a_label_table():
    recipe = load_recipe("glocalxml", ["labels.score_unseen=true"])
    check(recipe, lambda _: FACTS)
    with pytest.raises(ConfigError, match=r"needs a label table.*pass label_table="):
        check(recipe, lambda _: FACTS, has_label_table=False)


def test_rules_about_data():
    recipe = load_recipe("aplc", ["train.batch_size=8", "train.accumulation=2"])
    assert data_problems(recipe, DataFacts(n_texts=100, n_labels=50, processes=4)) == []
    found = data_problems(recipe, DataFacts(n_texts=7, n_labels=1, processes=4))
    assert "there are only 1 labels" in found[0]
    assert "a batch of 8 (train.batch_size) of 7 training texts" in found[1]
    assert partition_problems([1.0], 1) == []


# --- before anything is read or fitted ------------------------------------------------------------


class Unread(Corpus):
    """A corpus of 64 texts that none may look at."""

    def __getattribute__(self, name):
        if name in {"texts", "iter_texts", "fingerprint", "take", "labels", "table"}:
            raise AssertionError(f"the corpus was read: {name}")
        return super().__getattribute__(name)

    def __len__(self):
        return 64


def unread():
    corpus = tiny_corpus()
    corpus.__class__ = Unread
    return corpus


@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        ("glocalxml", ["encoder.name=/no/such/folder"]),
        ("balanced", ['experts=["D-last", "A-9", "S"]']),
        ("balanced", ["encoder.max_length=4000"]),
        ("treaderxml", ["reader.heads=7"]),
        ("balanced", ["train.metric=p5"]),
        ("balanced", ["train.budget=soon"]),
        ("balanced", ["labels.score_unseen=true"]),
        ("treaderxml", ["reader.encode=static", 'experts=["R-0"]', "teacher.vectors=none.vec"]),
    ],
)
def test_a_run_stops_before_texts_are_read(tmp_path, name, overrides):
    listener = Recorder()
    with pytest.raises(Exception) as caught:  # noqa: PT011 - of several kinds
        fit(tiny_recipe(name, *overrides), unread(), out=tmp_path / "m", listener=listener)
    assert not isinstance(caught.value, AssertionError), caught.value
    assert not listener.messages
    assert not (tmp_path / "m.run").exists()


def test_the_corpus_of_these_tests_notices_being_read(tmp_path):
    with pytest.raises(AssertionError, match="the corpus was read"):
        fit(tiny_recipe("glocalxml"), unread(), out=tmp_path / "m")


def test_what_depends_on_labels_fails_before_companions_are_fitted(tmp_path, monkeypatch):
    def fitted(*_, **__):
        raise AssertionError("fitted")

    monkeypatch.setattr("glocal.train.gather.Companions.fit", fitted)
    many = ", ".join(["0.01"] * 100)
    recipe = tiny_recipe("balanced", "document.head=aplc", f"aplc.partition=[{many}]")
    with pytest.raises(ConfigError, match="makes 100 clusters, but there are only 15 labels"):
        train(recipe, tmp_path / "m")
    numbers = Corpus.from_texts(["a", "b"] * 20, [["1"], ["2"]] * 20)
    with pytest.raises(ConfigError, match="none of the 2 labels has one"):
        train(tiny_recipe("balanced", "labels.text=tied"), tmp_path / "m", corpus=numbers)


def test_a_folder_without_weights_is_no_encoder(tmp_path):
    from tests.encoders.folders import xlnet_folder

    folder = xlnet_folder(tmp_path / "encoder")
    recipe = tiny_recipe("glocalxml", f"encoder.name={folder}")
    for file in folder.glob("*.safetensors"):
        file.unlink()
    with pytest.raises(ModelError, match="the folder holds no weights"):
        fit(recipe, unread(), out=tmp_path / "m")


# --- resolving ------------------------------------------------------------------------------------


def resolved(name, *overrides, n_labels=10, device_type="cpu", **planned):
    checked = check(load_recipe(name, overrides), lambda _: FACTS)
    return resolve(checked, n_labels=n_labels, device_type=device_type, **planned)


def test_candidates_depend_on_labels_and_device():
    assert resolved("glocalxml").candidates.mode == "full"
    assert resolved("glocalxml", n_labels=4000).candidates.mode == "shortlist"
    assert resolved("glocalxml", n_labels=4000, device_type="cuda").candidates.mode == "full"
    full = resolved("glocalxml", "candidates.mode=full", n_labels=4000)
    assert full.candidates.mode == "full"
    assert resolved("me-xml-1", n_labels=4000).candidates.mode == "full"


def test_label_precision_depends_on_labels_device_and_loss():
    large = {"n_labels": 200_000, "device_type": "cuda"}

    def precision(*overrides, **options):
        return resolved("glocalxml", *overrides, **{**large, **options}).train.label_precision

    assert precision() == "bf16"
    assert precision(n_labels=199_999) == precision(device_type="cpu") == "fp32"
    assert precision(processes=2) == precision("train.accumulation=2") == "fp32"
    assert precision("loss.diversity_weight=0.1") == precision("labels.text=tied") == "fp32"
    assert precision("train.label_precision=fp32") == "fp32"
    assert precision("train.label_precision=bf16", n_labels=10, device_type="cpu") == "bf16"


def test_what_was_planned_fills_what_is_open():
    recipe = resolved("auto", "train.budget=10m", epochs=4, members=3)
    assert (recipe.experts, recipe.train.budget) == (("D-last", "A-last", "S"), "")
    assert (recipe.train.epochs, recipe.train.members) == (4, 3)
    fast = resolved("auto", drop_encoder=True)
    assert (fast.experts, fast.encoder.name) == (("S",), "none")


def test_a_recipe_that_leaves_nothing_open_stays_as_written():
    checked = check(load_recipe("glocalxml"), lambda _: FACTS)
    assert isinstance(checked, CheckedRecipe)
    assert not checked.is_open
    assert checked.draft == checked.written
    recipe = resolve(checked, n_labels=10, device_type="cuda")
    expected = recipe_to_mapping(checked.written)
    expected["candidates"]["mode"] = "full"
    expected["train"]["label_precision"] = "fp32"
    assert recipe_to_mapping(recipe) == expected


@pytest.mark.parametrize(
    ("named", "n_labels", "overrides", "expected"),
    [
        (True, 10, [], "tied"),
        (False, 10, [], "off"),
        (True, BF16_LABELS_FROM, [], "off"),
        (True, BF16_LABELS_FROM, ["labels.text=tied"], "tied"),
        (True, 10, ["attention.query_init=tokens"], "off"),
        (True, 10, ["labels.text=off"], "off"),
    ],
)
def test_label_text_is_used_where_labels_have_names(named, n_labels, overrides, expected):
    recipe = load_recipe("balanced", overrides)
    checked = check(recipe, lambda _: FACTS, has_label_names=named)
    assert resolve(checked, n_labels=n_labels, device_type="cuda").labels.text == expected


def test_a_resolved_recipe_is_stored_and_read_back():
    recipe = resolved("best")
    again = resolved_from_mapping(recipe_to_mapping(recipe), source="test")
    assert type(again) is ResolvedRecipe
    assert again == recipe


def test_members_differ_in_their_seed_alone():
    recipe = resolved("best", "train.seed=7")
    second = recipe.member(1)
    assert (second.train.seed, second.train.members) == (8, 1)
    assert recipe_to_mapping(second) | {"train": None} == recipe_to_mapping(recipe) | {
        "train": None
    }
