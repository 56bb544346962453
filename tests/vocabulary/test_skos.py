"""SKOS and Annif vocabularies as label tables."""

import gzip
import json
import socket
import sys

import pytest

from glocal.errors import ConfigError, DataError, MissingExtraError
from glocal.vocabulary.concept_choice import ConceptChoice
from glocal.vocabulary.label_table import LabelEntry, read_label_table

PREFIXES = """@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix xl: <http://www.w3.org/2008/05/skos-xl#> .
@prefix rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#> .
@prefix owl: <http://www.w3.org/2002/07/owl#> .
@prefix : <http://v.example/> .
"""
TURTLE = (
    PREFIXES
    + """:animals a skos:ConceptScheme ; skos:prefLabel "Animals"@en ; skos:hasTopConcept :fish .
:fish a skos:Concept , :Kind ;
  skos:prefLabel "Fish"@en , "Fisch"@de , "poisson"@fr ;
  skos:altLabel "fishes"@en , "Fische"@de ; skos:notation "59.7" ; skos:narrower :cod .
:cod a skos:Concept ; skos:prefLabel "Kabeljau"@de ; skos:altLabel "Dorsch"@de , "torsk"@sv ;
  skos:narrower :fish ; skos:scopeNote [ rdf:value "Eaten  in the north"@en ] ;
  skos:inScheme :animals .
:old a skos:Concept ; skos:prefLabel "old"@en ; owl:deprecated true .
:hake xl:prefLabel [ xl:literalForm "Hake"@en-GB ] ; skos:broader :fish , [ skos:notation "1" ] .
:bare a skos:Concept .
[] a skos:Concept ; skos:prefLabel "without an address"@en .
"""
)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GLOCAL_CACHE", str(tmp_path / "cache"))


def write(folder, text, name="v.ttl"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def named(*names):
    return tuple(f"http://v.example/{name}" for name in names)


def short(table):
    return [id_.rpartition("/")[2] for id_ in table.ids]


def test_concepts(tmp_path):
    table = read_label_table(write(tmp_path, TURTLE))
    fish, cod, hake, bare = named("fish", "cod", "hake", "bare")
    assert [table.get(id_) for id_ in table.ids] == [
        LabelEntry(fish, "Fish", "", (cod,), ("fishes",), "59.7"),
        LabelEntry(cod, "Kabeljau", "Eaten in the north", (fish,), ("Dorsch",)),
        LabelEntry(hake, "Hake", "", (fish,)),
        LabelEntry(bare, bare),
    ]
    assert "cycle" in table.problems()[0]


def test_languages_in_order_of_preference(tmp_path):
    path = write(tmp_path, TURTLE)
    fish, cod = named("fish", "cod")
    table = read_label_table(path, choice=ConceptChoice(languages=("sv", "de", "EN")))
    assert table.get(fish).name == "Fisch"
    assert table.get(fish).alt_names == ("Fish", "Fische", "fishes")
    assert table.get(cod).name == "Kabeljau"
    assert table.get(cod).alt_names == ("torsk", "Dorsch")


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"schemes": named("animals")}, ["fish", "cod"]),
        ({"exclude_schemes": named("animals")}, ["hake", "bare"]),
        ({"types": named("Kind")}, ["fish"]),
        ({"exclude_types": named("Kind")}, ["cod", "hake", "bare"]),
        ({"branches": named("fish")}, ["fish", "cod", "hake"]),
        ({"branches": named("fish"), "exclude_branches": named("hake")}, ["fish", "cod"]),
        ({"ids": named("cod", "bare", "gone")}, ["cod", "bare"]),
        ({"exclude_ids": named("cod")}, ["fish", "hake", "bare"]),
        ({"deprecated": True}, ["fish", "cod", "old", "hake", "bare"]),
    ],
)
def test_choice_of_concepts(tmp_path, choice, expected):
    table = read_label_table(write(tmp_path, TURTLE), choice=ConceptChoice(**choice))
    assert short(table) == expected
    assert all(parent in table for parents in table.parents for parent in parents)


def test_branch_and_list_of_a_plain_table(tmp_path):
    rows = [{"id": "a"}, {"id": "b", "parents": ["a"]}, {"id": "c"}]
    path = write(tmp_path, "\n".join(map(json.dumps, rows)), "labels.jsonl")
    assert read_label_table(path, choice=ConceptChoice(branches=("a",))).ids == ["a", "b"]
    assert read_label_table(path, choice=ConceptChoice(exclude_ids=("b",))).ids == ["a", "c"]
    with pytest.raises(ConfigError, match="none of the 3 labels"):
        read_label_table(path, choice=ConceptChoice(ids=("z",)))
    with pytest.raises(ConfigError, match="schemes can only be chosen in a SKOS"):
        read_label_table(path, choice=ConceptChoice(schemes=("s",)))


def test_choices_that_leave_nothing(tmp_path):
    path = write(tmp_path, TURTLE)
    with pytest.raises(ConfigError, match="none of the 5 concepts passes"):
        read_label_table(path, choice=ConceptChoice(schemes=("http://v.example/plants",)))
    with pytest.raises(ConfigError, match=r"the branch 'fish' is not in the vocabulary"):
        read_label_table(path, choice=ConceptChoice(branches=("fish",)))
    with pytest.raises(ConfigError, match="not a language code"):
        ConceptChoice(languages=("en,de",))


XML = """<?xml version="1.0"?>
<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"
  xmlns:skos="http://www.w3.org/2004/02/skos/core#">
<skos:Concept rdf:about="http://v.example/fish">
  <skos:prefLabel xml:lang="en">Fish</skos:prefLabel></skos:Concept>
</rdf:RDF>"""
JSON_LD = json.dumps(
    {
        "@context": {"skos": "http://www.w3.org/2004/02/skos/core#"},
        "@id": "http://v.example/fish",
        "@type": "skos:Concept",
        "skos:prefLabel": {"@value": "Fish", "@language": "en"},
    }
)
TRIPLES = '<http://v.example/fish> <http://www.w3.org/2004/02/skos/core#prefLabel> "Fish"@en .\n'


@pytest.mark.parametrize(
    ("name", "text"),
    [("v.rdf", XML), ("v.xml", XML), ("v.jsonld", JSON_LD), ("v.nt", TRIPLES), ("v.ttl", TRIPLES)],
)
def test_syntaxes(tmp_path, name, text):
    assert read_label_table(write(tmp_path, text, name)).names == ["Fish"]
    zipped = tmp_path / f"zipped-{name}.gz"
    zipped.write_bytes(gzip.compress(text.encode()))
    assert read_label_table(zipped).names == ["Fish"]


def test_broken_turtle_is_named_by_line(tmp_path):
    path = write(tmp_path, TURTLE.replace(":bare a skos:Concept .", ":bare a .\n"))
    with pytest.raises(DataError, match=r"v\.ttl:15: not valid ttl \(.*\); fix the file"):
        read_label_table(path)


def test_file_without_concepts(tmp_path):
    with pytest.raises(DataError, match="no concepts in the file"):
        read_label_table(write(tmp_path, PREFIXES + ":a owl:sameAs :b ."))


def test_nothing_is_fetched(tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    remote = json.dumps({"@context": "http://localhost:9/context.jsonld", "@id": "http://v/a"})
    with pytest.raises(DataError, match="its @context is a web address"):
        read_label_table(write(tmp_path, remote, "v.jsonld"))


def test_cached_table_is_the_same_and_needs_no_parser(tmp_path, monkeypatch):
    path = write(tmp_path, TURTLE)
    first = read_label_table(path)
    monkeypatch.setitem(sys.modules, "pyoxigraph", None)
    assert read_label_table(path) == first
    path.write_text(TURTLE + "\n:new a skos:Concept .")
    with pytest.raises(MissingExtraError, match=r"pip install 'glocal\[skos\]'"):
        read_label_table(path)


def test_large_vocabulary(tmp_path):
    """100,000 concepts with cycles, languages, blank nodes and deprecated concepts."""
    lines = [PREFIXES]
    for number in range(100_000):
        deprecated = " ; owl:deprecated true" if number % 10 == 3 else ""
        lines.append(
            f':c{number} a skos:Concept ; skos:prefLabel "name {number}"@en , "Name {number}"@de ;'
            f' skos:altLabel "other {number}"@en ; skos:broader :c{(number * 7 + 1) % 100_000} ;'
            f" skos:broader [ a skos:Concept ]{deprecated} ."
        )
    reports = []
    path = write(tmp_path, "\n".join(lines))
    table = read_label_table(path, progress=lambda done, total: reports.append(done))
    assert len(table) == 90_000
    assert reports[:2] == [100_000, 200_000]
    entry = table.get("http://v.example/c12345")
    assert (entry.name, entry.alt_names) == ("name 12345", ("other 12345",))
    assert entry.parents == (f"http://v.example/c{(12345 * 7 + 1) % 100_000}",)


def test_annif_tsv(tmp_path):
    text = "<http://v.example/fish>\tFish\t59.7\n<http://v.example/cod>\tCod\n"
    table = read_label_table(write(tmp_path, text, "v.tsv"))
    assert (short(table), table.names, table.notations) == (
        ["fish", "cod"],
        ["Fish", "Cod"],
        ["59.7", ""],
    )
    with pytest.raises(DataError, match=r"v\.tsv:3: 'plain' is not a concept"):
        read_label_table(write(tmp_path, text + "plain\n", "v.tsv"))


def test_annif_csv(tmp_path):
    text = "uri,label_fi,label_en,notation\nhttp://v.example/fish,kala,Fish,59.7\nhttp://v/a,,,\n"
    path = write(tmp_path, text, "v.csv")
    assert read_label_table(path).get("http://v.example/fish").name == "Fish"
    finnish = read_label_table(path, choice=ConceptChoice(languages=("fi", "en")))
    assert finnish.get("http://v.example/fish") == LabelEntry(
        "http://v.example/fish", "kala", alt_names=("Fish",), notation="59.7"
    )
    assert finnish.names[1] == "http://v/a"
