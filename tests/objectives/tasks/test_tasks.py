"""The protocol of tasks, texts among tokens, presets as published, and several questions in one example."""

from dataclasses import replace
from functools import lru_cache
from itertools import groupby, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpora.errors import FarspanError
from corpora.storage.ragged import Ragged
from corpora.tokenizers.training import train_sentencepiece
from objectives.api.protocol import Tools, equip
from objectives.api.special_tokens import DOCUMENT_SEPARATOR, SpecialTokens
from objectives.tasks.presets import PRESETS
from objectives.tasks.protocol import (
    NO_TARGET,
    TASKS,
    PairFacts,
    Task,
    divide_answers,
    group_questions,
    load_task,
    sample_targets,
    split_groups,
)
from objectives.tasks.text_to_text import TextToText
from objectives.tasks.texts import encode_inserted, spell_after_space
from tests.artefacts import small_tokenizer
from tests.objectives.tasks.pairs import BOS, EOS, FACTS, OWNED, pair_batch
from tests.third_party import install_plugins


def test_a_task_is_found_by_its_name_and_by_a_preset():
    task = load_task("text_to_text", "led", {"global_attention": "query", "separator": "null"})
    assert task == TextToText(middle="<eos>", separator=None, global_attention="query", target_length=255)
    assert isinstance(task, Task)
    assert TASKS.resolve("bart_ls") == ("text_to_text", "bart_ls")


@pytest.mark.parametrize(
    ("preset", "options", "message"),
    [
        ("bart", None, r"task text_to_text has no preset 'bart' .*its presets: bart_ls, bart_ls_summary, "),
        (None, {"querry": 1}, r"no option 'querry' \(did you mean 'query'\?\); its options: query, "),
        (None, {"query": "last"}, r"option query is 'last'; give none, first, every_block or decoder"),
        (None, {"block": 32768, "query": "every_block"}, "block is 32768; give at most source_length"),
        (None, {"query": "none", "global_attention": "query"}, "is 'query'; give another rule, or query"),
        ("led", {"global_attention": "separators"}, "give bos, or separator=<doc-sep> beside it"),
        (None, {"targets": "all"}, "option targets is 'all'; give each, first or sampled"),
        (None, {"questions": 3}, "option questions is 3; give 1, or targets=first or sampled"),
    ],
)
def test_wrong_names_and_options_are_answered_with_the_right_ones(preset, options, message):
    with pytest.raises(FarspanError, match=message):
        load_task("text_to_text", preset, options)


def test_an_unknown_task_is_answered_with_a_known_one():
    with pytest.raises(FarspanError, match=r"'text_to_txt' \(did you mean 'text_to_text'\?\); installed: text_to_text"):
        load_task("text_to_txt")


def test_a_third_partys_task_is_found_with_options_and_checks(farspan_lead):
    assert TASKS.resolve("brief") == ("lead_question", "brief")
    task = equip(load_task("lead_question", "brief"), Tools(small_tokenizer()))
    assert isinstance(task, Task)
    assert task.options == {"lead": 2}
    special = task.validate(PairFacts(400, OWNED))
    rendered = task.render(pair_batch([[[9, 8, 7], [6, 5]]], [[4]]), np.array([0]), special)
    assert rendered.examples.source_ids.tolist() == [[9, 8, 6, 5, 400, 4, EOS]]
    assert rendered.cut.documents.tolist() == [1]
    with pytest.raises(FarspanError, match="option lead is 0"):
        load_task("lead_question", None, {"lead": 0})


def test_a_task_that_lacks_a_member_is_one_line(tmp_path, monkeypatch):
    sound = "tests.objectives.broken:Sound"
    install_plugins(tmp_path, "broken-tasks", {"farspan.tasks": {"sound": sound}})
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(FarspanError, match=f"^task sound: entry point {sound} of broken-tasks makes Sound, which lac"):
        load_task("sound")


def test_sampled_targets_are_keyed_by_seed_pair_and_epoch():
    names = [f"pair-{i}" for i in range(3000)]
    counts, epochs = np.arange(3000) % 4, np.zeros(3000, np.int64)
    drawn = sample_targets(3, names, epochs, counts)
    assert (drawn[counts == 0] == NO_TARGET).all()
    assert (drawn < np.maximum(counts, 0)).all()
    some = np.array([2999, 7, 1503])
    assert (sample_targets(3, [names[i] for i in some], epochs[some], counts[some]) == drawn[some]).all()
    for other in (sample_targets(4, names, epochs, counts), sample_targets(3, names, epochs + 1, counts)):
        agree = (other == drawn)[counts == 3].mean()
        assert 0.25 < agree < 0.42  # as often as chance has it
    assert np.abs(np.bincount(drawn[counts == 3]) / 750 - 1 / 3).max() < 0.06


WORDS = "the quick brown fox jumps over lazy dogs while seven wizards observe strange lights".split()
TEXTS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=5).map(" ".join)


@lru_cache(maxsize=1)
def sentence_pieces():
    texts = [f"question: {a} {b}? context: {b} {c}." for a in WORDS for b in WORDS for c in "ab"]
    return train_sentencepiece(texts, 300)


def encoded(tokenizer, text):
    return tokenizer.encode([text]).values.tolist()


@settings(max_examples=15)
@given(TEXTS, TEXTS)
def test_line_ends_between_texts_of_byte_level_bpe(query, document):
    tokenizer = small_tokenizer()
    joined = [*encoded(tokenizer, query), *encode_inserted(tokenizer, "\n\n"), *encoded(tokenizer, document)]
    assert joined == encoded(tokenizer, f"{query}\n\n{document}")


@settings(max_examples=15)
@given(TEXTS, TEXTS)
def test_prefix_and_middle_of_sentencepiece(query, document):
    tokenizer = sentence_pieces()
    joined = [
        *encode_inserted(tokenizer, "question: ", first=True),
        *encoded(tokenizer, query),
        *encode_inserted(tokenizer, " context: "),
        *encoded(tokenizer, document),
    ]
    assert joined == encoded(tokenizer, f"question: {query} context: {document}")


@pytest.mark.parametrize("text", [" context: ", "x", " ", "\n", "question: "])
def test_what_cannot_be_cut_out_still_reads_the_same(text):
    tokenizer = small_tokenizer()
    joined = [*encoded(tokenizer, "fox"), *encode_inserted(tokenizer, text), *encoded(tokenizer, "dogs")]
    assert tokenizer.decode(joined) == f"fox{text}dogs"
    joined = [*encode_inserted(tokenizer, text, first=True), *encoded(tokenizer, "dogs")]
    assert tokenizer.decode(joined) == f"{text}dogs"


@settings(max_examples=15)
@given(TEXTS)
def test_targets_after_a_space_have_the_tokens_of_the_same_words_in_a_document(target):
    tokenizer = small_tokenizer()
    (spelt,) = spell_after_space(tokenizer, tokenizer.encode([target]))
    assert [*encoded(tokenizer, "fox"), *spelt] == encoded(tokenizer, f"fox {target}")
    assert spelt.tolist() != encoded(tokenizer, target)
    assert tokenizer.decode(spelt) == f" {target}"


def test_targets_that_need_no_space_stay_as_they_are():
    pieces, tokenizer = sentence_pieces(), small_tokenizer()
    targets = pieces.encode(["fox", "", " dogs"])
    assert spell_after_space(pieces, targets) is targets
    spaced = ["\nfox", " dogs"]
    assert list(map(tokenizer.decode, spell_after_space(tokenizer, tokenizer.encode(spaced)))) == spaced
    assert spell_after_space(tokenizer, Ragged.from_rows([], "int32")).lengths.size == 0


RNG = np.random.default_rng(0)
TEXT = " ".join(RNG.choice(WORDS, 9000))  # longer than every preset's source
SUMMARY = " ".join(RNG.choice(WORDS, 800))
QUERY = " ".join(RNG.choice(WORDS, 4))


def rendered(preset, tokenizer, query=QUERY, texts=(TEXT,), options=None, answer=SUMMARY):
    """Source, target and global positions of one pair, and the special tokens."""
    task = equip(load_task("text_to_text", preset, options), Tools(tokenizer))
    documents = [encoded(tokenizer, text) for text in texts]
    batch = pair_batch([documents], [encoded(tokenizer, query)], [[encoded(tokenizer, answer)]])
    special = task.validate(PairFacts(tokenizer.vocab_size, tokenizer.owned_tokens))
    examples = task.render(batch, np.array([0]), special).examples
    marks = None if examples.global_positions is None else np.flatnonzero(examples.global_positions[0]).tolist()
    return examples.source_ids[0].tolist(), examples.target_ids[0].tolist(), marks, special


def hugging_face(tokenizer, special: SpecialTokens, text, max_length):
    """BART's and LED's ``tokenizer(text, max_length=, truncation=True)``."""
    return [special["<bos>"], *encoded(tokenizer, text)[: max_length - 2], special["<eos>"]]


def seqio(tokenizer, special: SpecialTokens, text, max_length):
    """``tokenize`` and ``append_eos_after_trim``."""
    return [*encoded(tokenizer, text)[: max_length - 1], special["<eos>"]]


def test_scrolls_is_the_baseline():
    tokenizer = small_tokenizer()
    source, target, marks, special = rendered("scrolls", tokenizer)
    assert source == hugging_face(tokenizer, special, f"{QUERY}\n\n{TEXT}", 16384)
    assert target == hugging_face(tokenizer, special, SUMMARY, 1024)
    assert marks == [0]


def test_a_task_of_scrolls_without_query_has_no_empty_line():
    tokenizer = small_tokenizer()
    for preset, plain in (("scrolls", hugging_face), ("pegasus_x", seqio)):
        source, _, _, special = rendered(preset, tokenizer, query="")
        assert source == plain(tokenizer, special, TEXT, 16384)


def test_led_is_the_summarization_script():
    """Its decoder reads ``output_ids[:-1]`` and predicts ``output_ids[1:]``."""
    tokenizer = small_tokenizer()
    source, target, marks, special = rendered("led", tokenizer, query="")
    assert source == hugging_face(tokenizer, special, TEXT, 16384)
    assert target == hugging_face(tokenizer, special, SUMMARY, 256)[1:]
    assert marks == [0]


def test_led_with_a_query_is_the_triviaqa_script():
    tokenizer = small_tokenizer()
    source, _, marks, special = rendered("led", tokenizer, options={"global_attention": "query"})
    begin, end = special["<bos>"], special["<eos>"]
    query, text = encoded(tokenizer, QUERY), encoded(tokenizer, TEXT)
    assert source == [begin, *query, end, *text[: 16384 - len(query) - 3], end]
    assert marks == list(range(source.index(end)))


def test_longt5_pegasus_x_and_bart_ls_summaries_are_their_pipelines():
    tokenizer = sentence_pieces()
    source, target, marks, special = rendered("longt5_qa", tokenizer, answer="seven wizards")
    assert source == seqio(tokenizer, special, f"question: {QUERY} context: {TEXT}", 16384)
    assert target == seqio(tokenizer, special, "seven wizards", 128)
    assert marks is None
    source, target, _, special = rendered("longt5_summary", tokenizer)
    assert source == seqio(tokenizer, special, f"summarize: {TEXT}", 16384)
    assert target == seqio(tokenizer, special, SUMMARY, 512)
    tokenizer = small_tokenizer()
    for preset, text, length in (("pegasus_x", f"{QUERY}\n\n{TEXT}", 256), ("bart_ls_summary", TEXT, 1024)):
        source, target, marks, special = rendered(preset, tokenizer)
        assert source == seqio(tokenizer, special, text, 16384)
        assert target == seqio(tokenizer, special, SUMMARY, length)
        assert marks is None


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_primera_is_its_dataloader(count):
    tokenizer = small_tokenizer()
    texts = [TEXT[place:] for place in range(0, count * 60, 60)]
    texts[-1] = texts[-1][:600]  # its share is not used up
    source, target, marks, special = rendered("primera", tokenizer, texts=texts if count > 1 else [TEXT])
    share = 4096 // count
    inner = []
    for text in texts if count > 1 else [TEXT]:
        inner += [*hugging_face(tokenizer, special, text, share)[1:-1], special["<doc-sep>"]]
    wanted = [special["<bos>"], *inner, special["<eos>"]]
    if count == 1:  # the dataloader makes 4,097 positions, one more than the model has
        del wanted[-3]
    assert source == wanted
    assert target == hugging_face(tokenizer, special, SUMMARY, 1024)[1:]
    assert marks == [0, *(place for place, token in enumerate(source) if token == special["<doc-sep>"])]


def test_every_preset_renders_a_pair_without_target():
    tokenizer = small_tokenizer()
    for preset in PRESETS:
        task: Any = equip(load_task("text_to_text", preset), Tools(tokenizer))
        special = task.validate(PairFacts(tokenizer.vocab_size, tokenizer.owned_tokens, 20, 50))
        examples = task.render(pair_batch([[[9]]], [[5]], [[]]), np.array([NO_TARGET]), special).examples
        assert examples.target_ids.shape == (1, 1 if task.query == "decoder" else 0)  # the question alone
        assert 9 in examples.source_ids


LISTS = st.lists(st.integers(4, 399), max_size=5)


@given(st.lists(st.lists(st.integers(0, 2), max_size=2), max_size=30), st.integers(1, 4), st.integers(1, 7))
def test_groups_are_runs_of_equal_documents(documents, most, size):
    offsets = group_questions(Ragged.from_rows(documents, np.int64), most)
    runs = [len(list(run)) for _, run in groupby(documents)]
    assert np.diff(offsets).tolist() == [min(most, run - done) for run in runs for done in range(0, run, most)]
    parts = split_groups(np.arange(100, 100 + len(documents)), offsets, size)
    assert [row for part in parts for row in part] == list(range(100, 100 + len(documents)))
    assert {int(part[0]) - 100 for part in parts} <= {*offsets.tolist()}
    if most == 1:
        sizes = [len(documents[at : at + size]) for at in range(0, len(documents), size)]
        assert [len(part) for part in parts] == sizes


@given(st.lists(st.tuples(LISTS, LISTS, LISTS), min_size=1, max_size=6), st.integers(1, 4), st.booleans())
def test_answers_come_back_from_a_joined_target(pairs, most, second):
    batch = pair_batch([[[9, 8]]] * len(pairs), [query for query, *_ in pairs], [list(own) for _, *own in pairs])
    offsets = group_questions(batch.pair_documents, most)
    task = load_task("text_to_text", None, {"targets": "first", "questions": most, "query": "decoder", "begin": False})
    special = task.validate(FACTS)
    chosen = np.full(len(pairs), int(second))
    examples = task.render(replace(batch, example_offsets=offsets), chosen, special).examples
    assert [*examples.sequence_ids.tobytes()] == [*batch.keys[offsets[:-1]].tobytes()]
    separator = special.ids.get(DOCUMENT_SEPARATOR, 400)
    for row, (begin, end) in enumerate(pairwise(offsets)):
        target = examples.target_ids[row, : examples.target_lengths[row]]
        sides = np.split(target[:-1], [examples.prompt_lengths[row]])
        queries, answers = (divide_answers(side, end - begin, separator) for side in sides)
        assert [part.tolist() for part in queries] == [query for query, *_ in pairs[begin:end]]
        assert [part.tolist() for part in answers] == [own[second] for _, *own in pairs[begin:end]]
        assert target[-1] == EOS
        assert examples.source_ids[row, : examples.source_lengths[row]].tolist() == [9, 8, EOS]


def test_missing_and_further_answers():
    tokens = np.array([5, 400, 400, 6, 7])
    assert [part.tolist() for part in divide_answers(tokens, 2, 400)] == [[5], []]
    assert [part.tolist() for part in divide_answers(tokens, 5, 400)] == [[5], [], [6, 7], [], []]


def test_questions_stand_before_the_documents_and_nothing_is_answered_in_a_prompt():
    batch = pair_batch([[[9]], [[9]], [[8]]], [[20], [21, 22], [23]], [[[30]], [[31]], [[32]]])
    task = load_task("text_to_text", None, {"targets": "sampled", "questions": 2})
    special = task.validate(FACTS)
    between = special[DOCUMENT_SEPARATOR]
    asked = replace(batch, example_offsets=group_questions(batch.pair_documents, 2))
    examples = task.render(asked, np.full(3, NO_TARGET), special).examples
    assert examples.target_lengths.tolist() == [0, 0]
    sources = [ids[:size].tolist() for ids, size in zip(examples.source_ids, examples.source_lengths, strict=True)]
    assert sources == [[BOS, 20, between, 21, 22, 9, EOS], [BOS, 23, 8, EOS]]
