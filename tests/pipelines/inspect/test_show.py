"""Output of `farspan show`: text in colours, the reason for each span, source and target; pairs; figures."""

import io
import re
import xml.etree.ElementTree as ElementTree
from io import StringIO
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from corpora.errors import FarspanError
from corpora.printing import printable
from corpora.schemas.pairs import PairSet
from objectives.api.mask_set import MaskSet
from pipelines import functions
from pipelines.engine.options import Engine
from pipelines.engine.run import run_job
from pipelines.inspect.options import Choice, Show
from pipelines.inspect.show import as_text, brackets_of, show
from pipelines.masks.job import plan
from pipelines.masks.options import Masking
from pipelines.pages.piece import BRACKETS, KINDS, Piece
from pipelines.pages.row import seen_pieces
from tests.artefacts import all_rows, make_corpus, make_documents, make_pairs, small_tokenizer


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return make_corpus(str(tmp_path_factory.mktemp("corpus") / "corpus"))


@pytest.fixture(scope="module")
def masks(corpus, tmp_path_factory, farspan_lead):
    folder = str(tmp_path_factory.mktemp("masks") / "masks")
    run_job(plan(Masking(corpus=corpus, output=folder, objective="lead_in", options={"lead": 5})), Engine(workers=1))
    return folder


def shown(folder, row=0, colours=False, **named) -> str:
    out = StringIO()
    system: Any = "truecolor" if colours else None
    console = Console(file=out, soft_wrap=True, highlight=False, force_terminal=colours, color_system=system)
    show(Show(artefact=folder, row=row, **named), console)
    return out.getvalue()


def without_folder(text: str) -> str:
    """Without the first line, which names it."""
    return text.partition("\n")[2]


def test_every_span_has_its_reason(corpus, masks):
    text = shown(masks, 3)
    spans = MaskSet(masks).take(np.array([3]))
    reasons = text[text.index("\nwhy\n") : text.index("\nsource")].strip().splitlines()[1:]
    assert len(reasons) == len(spans.span_starts[0])
    assert reasons[0].startswith("  #1 score ")
    best = int(np.argmin(spans.span_ranks[0]))
    start, size = int(spans.span_starts[0][best]), int(spans.span_lengths[0][best])
    assert f"score {spans.span_scores[0][best]:.4f} [{spans.span_labels[0][best].as_py()}]" in reasons[0]
    assert f"tokens {start} to {start + size}: " in reasons[0]
    attending = len(spans.global_positions[0])
    assert f"source, {spans.source_lengths[0]} positions, {attending} with global attention" in text
    assert text.count("<gap>") == 2 * len(reasons) - 1  # one a document in the source, and between leads in the target


def test_what_is_drawn_is_what_is_stored(corpus, masks):
    choice = Choice(objective="lead_in", options={"lead": 5})
    for row in (0, 7):
        assert without_folder(shown(corpus, row, choice=choice)) == without_folder(shown(masks, row))


def test_options_of_stored_masks_are_adjusted(corpus, masks):
    less, same = Choice(options={"lead": 2}), Choice(objective="lead_in", options={"lead": 2})
    assert without_folder(shown(masks, 3, choice=less)) == without_folder(shown(corpus, 3, choice=same))
    assert shown(masks, 3, choice=less) != shown(masks, 3)


def test_a_terminal_sees_hidden_text_and_its_legend(corpus):
    text = shown(corpus, 0, choice=Choice(objective="span", preset="t5"), colours=True)
    assert " hidden " in text
    assert "\x1b[30;43m" in text  # black on yellow
    assert "\x1b[30;42m" not in text  # nothing that is asked stays visible


def test_no_character_of_a_text_commands_the_terminal(corpus, masks):
    tokenizer = small_tokenizer()
    ids = tokenizer.encode(["red \x1b[31m\x9b2J \u202eback\r\n\tok"])[0]
    text = as_text(seen_pieces(ids, tokenizer, {"\x1b[2J": 400}, np.zeros(len(ids), bool)))
    assert text.plain == "red \\x1b[31m\\x9b2J \\u202eback\\r\n\tok"
    everything = "".join(shown(folder, row) for folder in (corpus, masks) for row in range(6))
    assert "\\x" in everything  # its random tokens are bytes of every kind
    assert printable(everything) == everything


def test_a_figure_is_the_same_text_in_colour(masks, tmp_path):
    one, other = tmp_path / "one.svg", tmp_path / "other.svg"
    assert [shown(masks, 0, figure=str(path)) for path in (one, other)] == ["", ""]
    svg = one.read_text()
    assert svg == other.read_text()
    text = "".join(ElementTree.fromstring(svg).itertext()).replace("\xa0", " ")
    assert "<gap>" in text
    assert "why" in text
    assert "#ffe282" in svg  # the ground of hidden text
    assert not re.search(r"@font-face|https?://(?!www\.w3\.org/2000/svg)", svg)


def test_a_cut_text_has_few_reasons(masks):
    most = int(MaskSet(masks).take(np.arange(10)).span_starts.lengths.argmax())
    whole, cut = shown(masks, most), shown(masks, most, width=100)
    assert whole.count("score") > 3
    assert cut.count("score") == 3
    assert f"... and {whole.count('score') - 3} more" in cut


@pytest.mark.parametrize(
    ("folder", "named", "message"),
    [
        ("corpus", {"row": 10_000}, "has rows 0 to"),
        ("corpus", {"figure": "row.png"}, r"--figure row\.png: is drawn as SVG"),
        ("corpus", {"corpus": "elsewhere"}, "--corpus elsewhere: .* holds no masks; leave the flag out"),
    ],
)
def test_flags_that_cannot_be_followed_are_refused(made, folder, named, message):
    with pytest.raises(FarspanError, match=message):
        shown(made[folder], **named)


@pytest.mark.parametrize(
    ("folder", "choice", "message"),
    [
        ("spans", Choice(objective="span"), "holds masks; show the corpus instead"),
        ("sentences", Choice(options={"strategy": "seq"}), "option strategy .* cannot be .*can be: target_length"),
        ("spans", Choice(preset="t5", scorer="model"), "--preset, --scorer: .* drawn already; show the corpus"),
        ("corpus", Choice(options={"lead": 2}), "holds no masks; name the objective: --objective NAME"),
        ("corpus", Choice(preset="t5", seed=3), "--preset, --seed: .* holds no masks; name the objective"),
        ("corpus", Choice(objective="spam"), "no objective is called 'spam'"),
        ("corpus", Choice(objective="span", scorer="model"), "objective span uses no model; leave the flag out"),
        ("corpus", Choice(task="bart_ls"), "--task bart_ls: .* holds no pairs; leave the flag out"),
        ("documents", Choice(objective="span", draw=1), "--objective span, --draw: .* holds documents; leave the fl"),
        ("pairs", Choice(objective="span"), "--objective span: .* holds pairs"),
        ("pairs", Choice(task="bart"), r"no task or preset is called 'bart' \(did you mean 'bart_ls'\?\)"),
        ("pairs", Choice(preset="bart_ls"), "--preset: .* holds pairs; name the task that renders them: --task NAME"),
        ("pairs", Choice(task="bart_ls", draw=1), "--draw: .* in which nothing is hidden; leave the flags out"),
    ],
)
def test_choices_that_do_not_fit_are_refused_before_anything_is_printed(made, folder, choice, message, capsys):
    with pytest.raises(FarspanError, match=message):
        show(Show(artefact=made[folder], choice=choice))
    assert capsys.readouterr().out == ""


def test_documents_with_titles_are_shown_by_them(tmp_path):
    documents = make_documents(str(tmp_path / "documents"), shards=1, documents=20, titles=("The \x1b[31mOne", None))
    corpus, pairs = str(tmp_path / "corpus"), make_pairs(str(tmp_path / "pairs"), documents)
    functions.corpus_random(documents=documents, sequence_length=2048, output=corpus, workers=1, quiet=True)
    for lines in (shown(corpus, 0), shown(corpus, 0, choice=Choice(objective="span"))):
        assert "  The \\x1b[31mOne (made:0:6): tokens 0 to " in lines
        assert "  made:0:7: tokens 0 to " in lines
    assert "document The \\x1b[31mOne (made:0:0), " in shown(pairs, 0)
    assert "document made:0:1, " in shown(pairs, 1)


def test_colours_say_what_happens_to_a_text():
    tokenizer = small_tokenizer()
    ids = np.array([400, *tokenizer.encode(["fox jumps"])[0], 401])
    attending = np.zeros(len(ids), bool)
    attending[0] = True
    text = as_text(seen_pieces(ids, tokenizer, {"<gap>": 400, "<eos>": 401}, attending))
    assert text.plain == "<gap>fox jumps<eos>"
    styles = {text.plain[span.start : span.end]: str(span.style) for span in text.spans}
    assert styles["<gap>"] == "bold red"
    assert styles["<eos>"] == "bold cyan"


def test_every_kind_of_span_has_brackets_of_its_own():
    for form in range(2):
        pairs = [pair[form] for pair in BRACKETS.values()]
        assert len(set(pairs)) == len(pairs)
    assert BRACKETS.keys() > KINDS.keys()
    assert "".join(plain for _, plain in BRACKETS.values()).isascii()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"force_terminal": True, "color_system": "truecolor"}, "a hidden b"),
        ({"force_terminal": True, "no_color": True}, "a ⟦hidden⟧ b"),
        ({"file": io.StringIO()}, "a ⟦hidden⟧ b"),
        ({"file": io.TextIOWrapper(io.BytesIO(), "latin-1")}, "a [[hidden]] b"),
    ],
    ids=["colour", "NO_COLOR", "pipe", "latin-1"],
)
def test_without_colour_hidden_text_is_in_brackets(options: dict, expected: str):
    pieces = [Piece("a ", "text"), Piece("hidden", "hidden"), Piece(" b", "text")]
    assert as_text(pieces, brackets_of(Console(**options))).plain == expected


def test_documents_are_shown_with_title_and_sentences(tmp_path, run):
    documents = make_documents(str(tmp_path / "documents"), shards=1, documents=20, titles=("The One", None))
    rows = all_rows(documents)
    number = max(range(20), key=lambda row: len(rows[row]["sentence_starts"]))
    for row in (number, number ^ 1):
        columns, text = rows[row], shown(documents, row)
        assert text.startswith(f"document {row} of {documents}, source made\n")
        title = "The One (" if row % 2 == 0 else ""
        assert f"  {title}{columns['document_id']}{')' * bool(title)}: {len(columns['tokens'])} tokens\n" in text
        starts = [*columns["sentence_starts"], len(columns["tokens"])]
        assert f"sentences {len(starts) - 1}, split" in text
        _, places = small_tokenizer().decode_with_offsets(np.array(columns["tokens"]))
        whole = small_tokenizer().decode(columns["tokens"])
        cuts = [*(int(places[start]) for start in starts[:-1]), len(whole)]
        sentences = [printable(whole[cuts[n] : cuts[n + 1]]) for n in range(len(cuts) - 1)]
        assert "|".join(sentences) in text
    assert run("show", documents, "--width", 40)[1].splitlines()[-1].endswith(" ...")


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pairs")
    return make_pairs(str(folder / "pairs"), make_documents(str(folder / "documents"), shards=1))


@pytest.fixture(scope="module")
def row(pairs):
    """Number and columns of a row with a query of 3 tokens or more, and a document of 60 or more."""
    lengths = PairSet(pairs).documents.take(range(40)).column("tokens").combine_chunks().value_lengths().to_pylist()
    for number, columns in enumerate(all_rows(pairs, "farspan.pairs")):
        if len(columns["query"]) > 2 and lengths[columns["document_rows"][0]] >= 60:
            return number, columns
    raise AssertionError


def decode(tokens):
    return printable(small_tokenizer().decode(tokens))


def test_source_target_and_cuts_are_shown(pairs, row):
    number, columns = row
    options = {"block": 16, "source_length": 48, "query_length": 4}
    text = shown(pairs, number, choice=Choice(task="bart_ls", options=options))
    cut = len(columns["query"]) - 2
    assert f"\ntask text_to_text, preset bart_ls: tokens cut: {cut} of the query, " in text
    source = text.split("\nsource, 48 positions\n")[1].split("\ntarget")[0]
    assert source.count(f"<bos>{decode(columns['query'][:2])}<eos>") == 3
    target = columns["targets"][0]
    assert f"\ntarget, {len(target) + 1} positions\n{decode(target)}<eos>" in text


def test_the_part_that_the_decoder_is_given_has_a_ground(pairs, row):
    number, columns = row
    text = shown(pairs, number, colours=True, choice=Choice(task="text_to_text", options={"query": "decoder"}))
    size, asked = len(columns["query"]), decode(columns["query"])
    heading = f"target, {size + len(columns['targets'][0]) + 1} positions, {size} of them given"
    assert f"\x1b[30;42m{asked}\x1b[0m" in text.split(heading)[1]


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
