"""``show`` of pairs: query, answers and documents, and what a task makes of them."""

from __future__ import annotations

import pytest

from corpora.errors import FarspanError
from corpora.printing import printable
from corpora.schemas.pairs import PairSet
from pipelines.inspect.options import Choice, Show
from pipelines.inspect.show import show
from tests.artefacts import all_rows, make_corpus, make_documents, make_pairs, small_tokenizer
from tests.pipelines.inspect.test_show import shown


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pairs")
    documents = make_documents(str(folder / "documents"), shards=1)
    return make_pairs(str(folder / "pairs"), documents)


@pytest.fixture(scope="module")
def row(pairs):
    """Number and columns of a row with a query of 3 tokens or more, and a document of 60 or more."""
    lengths = PairSet(pairs).documents.take(range(40)).column("tokens").combine_chunks().value_lengths().to_pylist()
    for number, columns in enumerate(all_rows(pairs, "farspan.pairs")):
        if len(columns["query"]) > 2 and lengths[columns["document_rows"][0]] >= 60:
            return number, columns
    raise AssertionError


def text_of(tokens):
    return printable(small_tokenizer().decode(tokens))


def test_source_target_and_cuts_are_shown(pairs, row):
    number, columns = row
    options = {"block": 16, "source_length": 48, "query_length": 4}
    text = shown(pairs, number, choice=Choice(task="bart_ls", options=options))
    cut = len(columns["query"]) - 2
    assert f"\ntask text_to_text, preset bart_ls: tokens cut: {cut} of the query, " in text
    source = text.split("\nsource, 48 positions\n")[1].split("\ntarget")[0]
    assert source.count(f"<bos>{text_of(columns['query'][:2])}<eos>") == 3
    target = columns["targets"][0]
    assert f"\ntarget, {len(target) + 1} positions\n{text_of(target)}<eos>" in text


def test_the_part_that_the_decoder_is_given_has_a_ground(pairs, row):
    number, columns = row
    text = shown(pairs, number, colours=True, choice=Choice(task="text_to_text", options={"query": "decoder"}))
    size, asked = len(columns["query"]), text_of(columns["query"])
    heading = f"target, {size + len(columns['targets'][0]) + 1} positions, {size} of them given"
    assert f"\x1b[30;42m{asked}\x1b[0m" in text.split(heading)[1]


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        (Choice(task="bart"), r"no task or preset is called 'bart' \(did you mean 'bart_ls'\?\)"),
        (Choice(preset="bart_ls"), r"--preset: .* holds pairs; name the task that renders them: --task NAME"),
        (Choice(task="bart_ls", draw=1), r"--draw: .* holds pairs, in which nothing is hidden; leave the flags out"),
    ],
)
def test_wrong_choices_are_refused(pairs, choice, message):
    with pytest.raises(FarspanError, match=message):
        shown(pairs, 0, choice=choice)


def test_a_wrong_choice_is_refused_before_anything_is_printed(pairs, capsys):
    with pytest.raises(FarspanError, match="no task or preset"):
        show(Show(artefact=pairs, choice=Choice(task="bart")))
    assert capsys.readouterr().out == ""


def test_a_corpus_has_no_task(tmp_path):
    with pytest.raises(FarspanError, match=r"--task bart_ls: .* holds no pairs; leave the flag out"):
        shown(make_corpus(str(tmp_path / "corpus"), shards=1), 0, choice=Choice(task="bart_ls"))


def test_a_pair_is_shown_with_its_answers_and_the_beginning_of_its_documents(tmp_path):
    documents = make_documents(str(tmp_path / "documents"), shards=1)
    pairs = make_pairs(str(tmp_path / "pairs"), documents, pairs=6, documents_per_pair=2)
    (row,) = (one for one in all_rows(pairs, "farspan.pairs") if one["pair_id"] == "pair-5")
    text = shown(pairs, 5)
    assert text.startswith(f"pair 5 of {pairs}, pair pair-5\nsplit validation, documents 2\n")
    assert f"query, {len(row['query'])} tokens" in text
    assert all(printable(reference) in text for reference in row["references"])
    assert [f"document {name}, " in text for name in row["document_ids"]] == [True, True]
    (first,) = (one for one in all_rows(documents) if one["document_id"] == row["document_ids"][0])
    beginning = printable(small_tokenizer().decode(first["tokens"]))[:20]
    assert f"{beginning} ..." in shown(pairs, 5, width=20)
    with pytest.raises(FarspanError, match="rows 0 to 5"):
        shown(pairs, 6)
    with pytest.raises(FarspanError, match=r"--objective span: .* holds pairs"):
        shown(pairs, 5, choice=Choice(objective="span"))
