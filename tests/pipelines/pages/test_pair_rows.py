"""Documents, pairs and predictions as pages, and filters of rows from addresses."""

import re
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpora.errors import FarspanError
from corpora.schemas.documents import DocumentSet
from corpora.schemas.pairs import PairSet
from corpora.schemas.predictions import PredictionSet
from objectives.metrics.metrics import load_metric
from pipelines.pages.document_rows import DocumentRows
from pipelines.pages.filters import Filter, matches, search
from pipelines.pages.page import FIRST, PageOptions
from pipelines.pages.pair_rows import PairRows, System, check_answers, load_rendering
from pipelines.pages.piece import nearest_reference, shared_words
from tests.artefacts import make_documents, make_predictions, small_tokenizer


@pytest.fixture(scope="module")
def systems(made):
    return [System(name, PredictionSet(made[name])) for name in ("first", "second")]


@pytest.fixture(scope="module")
def compared(made, systems):
    return PairRows("first", PairSet(made["pairs"]), systems)


def text_of(block) -> str:
    return "".join(piece.text for piece in block.pieces)


def test_predictions_stand_beside_the_references(made, compared, systems):
    pairs = PairSet(made["pairs"])
    (values,) = pairs.table([int(pairs.rows_of("validation")[3])]).to_pylist()
    assert compared.summary == f"{len(compared)} pairs of split validation"  # whose documents are not all
    beside = compared.page(3, PageOptions()).bands[0]
    assert [column.heading for column in beside] == ["references", "first", "second"]
    assert [text_of(block) for block in beside[0].blocks] == values["references"]
    assert text_of(beside[1].blocks[0]) == values["references"][-1]
    assert [piece.kind for piece in beside[1].blocks[0].pieces if piece.text.isalpha()].count("text") == 0
    assert text_of(beside[2].blocks[0]) == systems[1].predictions.texts[3]
    score = load_metric("f1").scores([systems[1].predictions.texts[3]], [values["references"]])["f1"][0]
    assert f"f1 {score:.1f}" in beside[2].note


def test_a_pair_has_question_answers_and_documents(made):
    subject = PairRows("pairs", PairSet(made["pairs"]))
    (values,) = PairSet(made["pairs"]).table([7]).to_pylist()
    page = subject.page(7, PageOptions())
    assert ("subset", "tales") in page.facts
    question, documents = page.bands
    tokenizer = small_tokenizer()
    said = {block.address: text_of(block) for column in question for block in column.blocks}
    assert said.get("query-0", "") == tokenizer.decode(values["query"])
    assert [said[f"option-{n}"] for n in range(2)] == [tokenizer.decode(ids) for ids in values["options"]]
    assert said["target-0"] == tokenizer.decode(values["targets"][0])
    assert [block.heading for block in documents[0].blocks] == values["document_ids"]


def test_a_task_shows_source_and_target(made):
    pairs = PairSet(made["pairs"])
    page = PairRows("pairs", pairs, rendering=load_rendering(pairs, "text_to_text")).page(2, PageOptions())
    (column,) = page.bands[1]
    assert column.heading == "task text_to_text"
    assert [block.heading for block in column.seen] == ["source", "target"]
    assert any(piece.kind == "special" for piece in column.seen[0].pieces)


def test_long_texts_are_folded(made, tmp_path):
    texts = ["word " * 10_000, *["short"] * 7]
    folder = make_predictions(str(tmp_path / "long"), made["pairs"], texts=texts)
    subject = PairRows("long", PairSet(made["pairs"]), [System("long", PredictionSet(folder))])
    block = subject.page(0, PageOptions()).bands[0][1].blocks[0]
    assert (block.stop, block.total, len(text_of(block))) == (1_000, 50_000, 1_000)
    assert text_of(block.cut(49_990, 100)) == texts[0][-10:]


def test_filters_of_pairs(made, compared):
    pairs = PairSet(made["pairs"])
    table = pairs.table(pairs.rows_of("validation")).to_pylist()
    first, stop = compared.batch_of(2)
    assert (first, stop) == (0, 8)
    for wanted, fits in (
        (Filter(id="pair-1"), lambda values: "pair-1" in values["pair_id"]),
        (Filter(source="other"), lambda values: any(name.startswith("other:") for name in values["document_ids"])),
        (Filter(least=10**6), lambda values: False),
    ):
        assert matches(compared, first, stop, wanted).tolist() == [fits(values) for values in table]
    assert "<script>alert(2)" in "".join(text for _, text in compared.texts(2))


def test_systems_answer_the_same_pairs(made, systems, tmp_path):
    other = make_predictions(str(tmp_path / "other"), made["pairs"], split="train")
    with pytest.raises(FarspanError, match="answers other pairs"):
        check_answers([systems[0], System("other", PredictionSet(other))])


WORDS = st.lists(st.sampled_from(["fox", "Fox", "dog", "ran", ",", " ", "\n", "über"]), max_size=12).map(" ".join)


def words(text: str) -> Counter:
    return Counter(re.findall(r"\w+", text.casefold()))


@given(WORDS, WORDS)
def test_as_many_words_are_marked_as_both_have(text, other):
    pieces = shared_words(text, other)
    assert "".join(piece.text for piece in pieces) == text
    assert [piece.start for piece in pieces] == [
        sum(len(before.text) for before in pieces[:number]) for number in range(len(pieces))
    ]
    marked = words(" ".join(piece.text for piece in pieces if piece.kind == "shared"))
    assert marked == words(text) & words(other)
    again = shared_words(other, text)
    assert words(" ".join(piece.text for piece in again if piece.kind == "shared")) == marked


def test_white_space_between_marked_words_is_marked():
    assert [(piece.text, piece.kind) for piece in shared_words("The quick fox, the dog.", "the QUICK fox the")] == [
        ("The quick fox", "shared"),
        (", ", "text"),
        ("the", "shared"),
        (" dog.", "text"),
    ]


@pytest.mark.parametrize(
    ("references", "nearest"), [((), -1), (("",), 0), (("a b", "fox", "a fox ran"), 1), (("fox ran", "ran fox"), 0)]
)
def test_the_nearest_reference_has_the_best_f1(references, nearest):
    assert nearest_reference("fox", references) == nearest


@pytest.fixture(scope="module")
def documents(made):
    return DocumentSet(made["documents"])


def test_a_page_has_the_document(documents):
    subject = DocumentRows("documents", documents)
    (values,) = documents.take([43]).to_pylist()
    page = subject.page(43, PageOptions())
    facts = dict(page.facts)
    assert facts["source"] == values["source"]
    assert facts["tokens"] == str(len(values["tokens"]))
    assert facts["split"] == ("held out" if values["held_out"] else "train")
    ((column,),) = page.bands
    pieces = column.blocks[0].pieces
    assert "".join(piece.text for piece in pieces if piece.tokens) == small_tokenizer().decode(values["tokens"])
    marks = [piece.start for piece in pieces if piece.kind == "boundary"]
    assert marks == values["sentence_starts"][1:]
    for start in (marks[0], marks[0] + 1):  # a range that begins at a sentence has its mark, too
        block = column.blocks[0].cut(start, 10**6)
        assert [piece.start for piece in block.pieces if piece.kind == "boundary"] == [m for m in marks if m >= start]


def test_a_long_document_is_folded_and_comes_piece_by_piece(tmp_path):
    documents = DocumentSet(make_documents(str(tmp_path / "long"), shards=1, documents=2, max_tokens=20_000))
    row = int(np.argmax([len(documents.take([row]).column("tokens")[0]) for row in range(2)]))
    ((column,),) = DocumentRows("long", documents).page(row, PageOptions()).bands
    (block,) = column.blocks
    assert (block.stop, block.total > FIRST) == (FIRST, True)
    more = block.cut(block.stop, 100)
    tokens = documents.take([row]).column("tokens")[0].as_py()
    assert more.ids.tolist() == tokens[FIRST : FIRST + 100]


def test_filters_of_documents(documents):
    subject = DocumentRows("documents", documents)
    first, stop = subject.batch_of(20)
    table = pa.Table.to_pylist(documents.take(range(first, stop)))
    lengths = sorted(len(values["tokens"]) for values in table)
    for wanted, fits in (
        (Filter(source="other"), lambda values: values["source"] == "other"),
        (Filter(id=":0:2"), lambda values: ":0:2" in values["document_id"]),
        (Filter(least=lengths[5], most=lengths[9]), lambda v: lengths[5] <= len(v["tokens"]) <= lengths[9]),
    ):
        assert matches(subject, first, stop, wanted).tolist() == [fits(values) for values in table]


def test_a_text_is_also_searched_in_titles(tmp_path):
    titles = ("About birds", None, "The sea")
    folder = make_documents(str(tmp_path / "titled"), shards=1, documents=9, titles=titles)
    subject = DocumentRows("titled", DocumentSet(folder))
    assert search(subject, Filter(text="the SEA"), 0, 1).row == 2
    assert search(subject, Filter(text="the SEA"), 3, 1).row == 5
    assert search(subject, Filter(text="the river"), 0, 1).row is None


def test_an_address_holds_a_filter():
    given = {"source": " wiki ", "least": "10", "most_hidden": "2.5", "rows": "9,3,3", "text": " a ", "draw": "7"}
    assert Filter.parse(given) == Filter(source="wiki", least=10, most_hidden=2.5, rows=(3, 9), text=" a ")
    assert not Filter.parse({"rows": "1"}).reads
    assert Filter.parse({"least": "0"}).reads


@pytest.mark.parametrize(("key", "value"), [("least", "ten"), ("rows", "1,b"), ("masks", "x"), ("least_hidden", "%")])
def test_other_values_are_refused(key, value):
    with pytest.raises(FarspanError, match=f"filter {key}="):
        Filter.parse({key: value})


def test_rows_by_their_documents():
    lists = pa.array([["a:1", "b:2"], [], ["a:2"], ["ab:1"]])
    subject = SimpleNamespace(mask_sets=(), measures=())
    for first, wanted, fits in (
        (0, Filter(source="a"), [True, False, True, False]),
        (0, Filter(source="a", id="2"), [True, False, True, False]),
        (2, Filter(id="b:"), [False, True]),
        (0, Filter(id="row 1"), [False, True, False, False]),
    ):
        names = pa.array([f"row {row}" for row in range(4)])
        subject.ids = lambda start, stop, names=names: (names.slice(start), lists.slice(start))
        assert matches(subject, first, 4, wanted).tolist() == fits
