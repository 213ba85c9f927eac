"""The task ``text_to_text`` against plain restatements of published layouts."""

import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpora.errors import FarspanError
from objectives.api.protocol import Tools, equip
from objectives.api.special_tokens import SpecialTokens
from objectives.tasks.protocol import NO_TARGET, document_lengths, load_task
from objectives.tasks.texts import encode_inserted
from tests.artefacts import small_tokenizer
from tests.objectives.tasks.pairs import BOS, EOS, FACTS, OWNED, PAD, SEPARATOR, pair_batch, sources
from tests.objectives.tasks.plain_layout import plain_layout


def fairseq_blocks(query, source, block, max_query, max_source):
    """``load_query_based_dataset`` of BART-LS with its data sets read as functions of lists."""
    question = [BOS, *query[: max_query - 2], EOS]
    size = block - len(question) - 1
    joined = []
    for start in range(0, len(source), size):
        joined += [*question, *source[start : start + size], EOS]
    while joined and joined[-1] == EOS:
        joined.pop()
    return [*joined[: max_source - 1], EOS]


@given(st.integers(1, 12), st.integers(1, 90), st.integers(8, 24), st.integers(3, 6), st.integers(24, 70))
def test_every_block_is_that_of_fairseq(query_size, size, block, max_query, max_source):
    query, source = list(range(10, 10 + query_size)), list(range(100, 100 + size))
    options = {"block": block, "query_length": max_query, "source_length": max_source}
    task = load_task("text_to_text", "bart_ls", options)
    wanted = fairseq_blocks(query, source, block, max_query, max_source)
    assert sources(task, pair_batch([[source]], [query])) == [wanted]


def test_blocks_of_the_published_size_are_full_but_the_last():
    task = load_task("text_to_text", "bart_ls")
    query, source = list(range(10, 45)), (np.arange(40_000) % 300 + 50).tolist()
    (found,) = sources(task, pair_batch([[source]], [query]))
    assert found == fairseq_blocks(query, source, 1024, 32, 16384)
    blocks = np.reshape(found, (-1, 1024))
    assert blocks.shape == (16, 1024)
    assert (blocks[:, :32] == [BOS, *query[:30], EOS]).all()
    assert (blocks[:, -1] == EOS).all()


def primera_shares(documents, max_input):
    """``concat_start_wdoc_global`` of PRIMERA's dataloader, whose tokenizer puts ``<s>`` and ``</s>`` around each."""
    joined = []
    for document in documents:
        encoded = [BOS, *document[: max_input // len(documents) - 2], EOS]
        joined += [*encoded[1:-1], SEPARATOR]
    return [BOS, *joined, EOS]


@given(st.lists(st.integers(0, 60), min_size=2, max_size=7), st.integers(20, 90))
def test_shares_are_those_of_primera(sizes, max_input):
    documents = [list(range(100, 100 + size)) for size in sizes]
    task = load_task("text_to_text", "primera", {"source_length": max_input})
    assert sources(task, pair_batch([documents])) == [primera_shares(documents, max_input)]


def test_a_query_that_fills_its_block_is_refused_with_the_pair():
    task = load_task("text_to_text", "bart_ls", {"block": 16, "query_length": None, "source_length": 64})
    batch = pair_batch([[[100]], [[100]]], [[5] * 12, [5] * 13])
    with pytest.raises(FarspanError, match=r"the query of pair 'pair-1' has 13 tokens, .* no room in block, 16 posit"):
        sources(task, batch)
    with pytest.raises(FarspanError, match=r"option query_length is 15; give at most 14, since block is 16, or null"):
        load_task("text_to_text", "bart_ls", {"block": 16, "query_length": 15, "source_length": 64})


def test_many_questions_over_one_document_share_its_source():
    task = load_task(
        "text_to_text", None, {"query": "decoder", "source_length": 16, "target_length": 8, "middle": "<eos>"}
    )
    document = list(range(100, 130))
    batch = pair_batch([[document]] * 3, [[5, 6], [7], []], [[[8]], [[9] * 9], []])
    assert task.shares_sources
    assert len(batch.document_tokens) == 1
    rendered = task.render(batch, np.array([0, 0, NO_TARGET]), task.validate(FACTS))
    examples = rendered.examples
    assert (examples.source_ids == [BOS, *document[:14], EOS]).all()
    rows = [row[:size].tolist() for row, size in zip(examples.target_ids, examples.target_lengths, strict=True)]
    assert rows == [[5, 6, EOS, 8, EOS], [7, EOS, 9, 9, 9, 9, 9, EOS], []]
    assert examples.prompt_lengths.tolist() == [3, 2, 0]
    assert rendered.cut.target.tolist() == [0, 4, 0]
    assert rendered.cut.documents.tolist() == [16, 16, 16]


CHOICES: dict[str, list[Any]] = {
    "query": ["none", "first", "every_block", "decoder"],
    "query_length": [None, 4, 7],
    "prefix": [None, "question: ", "<doc-s>"],
    "middle": [None, " context: ", "<eos>", "question: "],
    "documents": ["joined", "shares"],
    "leftover": ["lost", "handed_on"],
    "separator": [None, "<doc-sep>", "\n\n", "<eos>"],
    "separator_last": [False, True],
    "begin": [False, True],
    "end": [True, False],
    "target_begin": [False, True],
    "global_attention": ["none", "bos", "query", "separators"],
    "keep": ["head", "head_and_tail"],
    "source_length": [64, 75, 130],
    "target_length": [50, 61],
    "block": [48, 64],
}


@st.composite
def any_options(draw):
    options = {name: draw(st.sampled_from(values)) for name, values in CHOICES.items()}
    if options["query"] in ("none", "decoder") and options["global_attention"] == "query":
        options["global_attention"] = "bos"
    if options["separator"] is None and options["global_attention"] == "separators":
        options["global_attention"] = "none"
    return options


def special_or_encoded(text, special, first=False):
    if text is None:
        return []
    return [special[text]] if text in special.ids else list(encode_inserted(small_tokenizer(), text, first))


@settings(max_examples=120)
@given(
    any_options(),
    st.lists(
        st.tuples(st.lists(st.integers(0, 70), max_size=6), st.integers(0, 9), st.none() | st.integers(0, 40)),
        min_size=1,
        max_size=4,
    ),
)
def test_every_layout_is_that_of_plain_python(options, sizes):
    """Sources, global positions, targets, prompts and cuts; and the lengths without rendering are the same."""
    task: Any = equip(load_task("text_to_text", None, options), Tools(small_tokenizer()))
    texts = [[list(range(100, 100 + size)) for size in about] for about, _, _ in sizes]
    queries = [list(range(10, 10 + size)) for _, size, _ in sizes]
    targets = [[] if size is None else [list(range(50, 50 + size))] for _, _, size in sizes]
    batch = pair_batch(texts, queries, targets)
    special = task.validate(FACTS)
    chosen = np.array([0 if own else NO_TARGET for own in targets])
    rendered = task.render(batch, chosen, special)
    inserted = {name: special_or_encoded(options[name], special, name == "prefix") for name in INSERTED}
    examples = rendered.examples
    for row, own in enumerate(targets):
        plain = plain_layout(options, inserted, texts[row], queries[row], own[0] if own else None)
        length, target_length = examples.source_lengths[row], examples.target_lengths[row]
        assert examples.source_ids[row, :length].tolist() == plain.source
        assert (examples.source_ids[row, length:] == PAD).all()
        if options["global_attention"] == "none":
            assert examples.global_positions is None
        else:
            assert examples.global_positions[row, :length].tolist() == plain.marks
            assert not examples.global_positions[row, length:].any()
        assert examples.target_ids[row, :target_length].tolist() == plain.target
        assert (examples.target_ids[row, target_length:] == PAD).all()
        assert (examples.prompt_lengths is not None) == (options["query"] == "decoder")
        assert examples.prompt_lengths is None or examples.prompt_lengths[row] == plain.prompt
        cut = rendered.cut
        assert (cut.query[row], cut.documents[row], cut.target[row]) == plain.cut
    answers = np.array([len(own[0]) if own else NO_TARGET for own in targets])
    told = task.lengths(batch.queries.lengths, document_lengths(batch), answers)
    assert told.source.tolist() == examples.source_lengths.tolist()
    assert told.target.tolist() == examples.target_lengths.tolist()
    for name in ("query", "documents", "target"):
        assert getattr(told.cut, name).tolist() == getattr(rendered.cut, name).tolist()


INSERTED = ("prefix", "middle", "separator")


@pytest.mark.parametrize("query", ["none", "decoder"])
def test_targets_with_a_space_are_spelt_as_in_a_document(query):
    tokenizer = small_tokenizer()
    task: Any = equip(load_task("text_to_text", None, {"query": query, "target_space": True}), Tools(tokenizer))
    plain, spaced = (tokenizer.encode([text]).values.tolist() for text in ("lazy dogs", " lazy dogs"))
    batch = pair_batch([[[100]]] * 2, [[5]] * 2, [[[9], plain], []])
    special = task.validate(FACTS)
    rendered = task.render(batch, np.array([1, NO_TARGET]), special)
    (row, empty), sizes = rendered.examples.target_ids, rendered.examples.target_lengths
    prompt = [5] if query == "decoder" else []
    assert row[: sizes[0]].tolist() == [*prompt, *spaced, EOS]
    assert empty[: sizes[1]].tolist() == prompt
    told = task.lengths(batch.queries.lengths, document_lengths(batch), np.array([len(plain), NO_TARGET]))
    assert told.target[0] >= sizes[0]
    assert told.target[1] == sizes[1]
    with pytest.raises(FarspanError, match="a target needs the tokenizer"):
        load_task("text_to_text", None, {"target_space": True}).render(batch, np.array([1, NO_TARGET]), special)


@pytest.mark.parametrize("query", ["none", "decoder"])
def test_languages_frame_texts_as_in_mbart_50(query):
    """``lang X </s>`` and ``lang Y </s>``, after the decoder's ``</s>``; the ids are the tokenizer's own."""
    languages, tokenizer = {"en_XX": 3, "ro_RO": 4}, small_tokenizer()
    owning = SimpleNamespace(owned_tokens={**tokenizer.owned_tokens, **languages}, encode=tokenizer.encode)
    options = {"query": query, "begin": False, "prefix": "en_XX", "target_prefix": "ro_RO"}
    task: Any = equip(load_task("text_to_text", None, {**options, **({"prefix": None} if query == "decoder" else {})}),
                 Tools(owning))  # fmt: skip
    special = task.validate(replace(FACTS, owned_tokens={**OWNED, **languages}))
    batch = pair_batch([[[100, 101]]] * 2, [[5]] * 2, [[[9, 8]], []])
    examples = task.render(batch, np.array([0, NO_TARGET]), special).examples
    asked = [5] if query == "decoder" else []
    assert examples.source_ids.tolist() == [[*([3] if query == "none" else []), 100, 101, EOS]] * 2
    assert examples.target_ids[0].tolist() == [4, *asked, 9, 8, EOS]
    assert examples.prompt_lengths is None or examples.prompt_lengths.tolist() == [2, 2]
    told = task.lengths(batch.queries.lengths, document_lengths(batch), np.array([2, NO_TARGET]))
    assert told.target.tolist() == examples.target_lengths.tolist()
    assert special.vocab_size == FACTS.vocab_size + ("<doc-sep>" in special.ids)


def test_a_text_without_its_tokenizer_and_a_table_without_its_token_are_named():
    task = load_task("text_to_text", "longt5_qa")
    with pytest.raises(FarspanError, match=r"the text 'question: ' needs the tokenizer; give with_tools"):
        task.validate(FACTS)
    task = load_task("text_to_text")
    with pytest.raises(FarspanError, match=r"<doc-sep> is none of the special tokens: <pad>, <bos>, <eos>"):
        task.render(pair_batch([[[5], [6]]]), np.array([0]), SpecialTokens.append(400, OWNED))


def test_texts_that_fill_the_source_and_targets_of_other_pairs_are_refused():
    task = equip(load_task("text_to_text", None, {"prefix": "fox " * 9, "source_length": 8}), Tools(small_tokenizer()))
    with pytest.raises(FarspanError, match="prefix and middle leave no room in source_length, 8 positions; raise sour"):
        task.validate(FACTS)
    batch = pair_batch([[[5]], [[6]]], None, [[[7]], [[8], [9]]])
    task = load_task("text_to_text")
    with pytest.raises(IndexError, match="the index of a chosen target is outside its pair"):
        task.render(batch, np.array([1, 0]), task.validate(FACTS))


@pytest.mark.parametrize(
    ("options", "longest", "message"),
    [
        (
            {"query": "every_block", "block": 64},
            63,
            "the longest query has 63 tokens, .* no room in block, 64 position",
        ),
        (
            {"query": "first", "source_length": 64},
            62,
            "has 62 tokens, .* no room in source_length, 64 positions; raise",
        ),
        (
            {"query": "decoder", "target_length": 64},
            63,
            "in target_length, 64 positions; raise target_length, or set qu",
        ),
    ],
)
def test_a_query_that_leaves_no_room_is_an_error_before_work_starts(options, longest, message):
    task = load_task("text_to_text", None, options)
    with pytest.raises(FarspanError, match=message) as told:
        task.validate(replace(FACTS, max_query_tokens=longest))
    task.validate(replace(FACTS, max_query_tokens=longest - 2))
    advice = int(re.search(r"at most ([\d,]+)", str(told.value)).group(1).replace(",", ""))
    load_task("text_to_text", None, {**options, "query_length": advice}).validate(
        replace(FACTS, max_query_tokens=longest)
    )
