"""The protocol of tasks, the division of positions, and texts among tokens."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpora.errors import FarspanError
from corpora.storage.ragged import Ragged
from corpora.tokenizers.kinds.sentencepiece import train as train_sentencepiece
from objectives.api.protocol import Tools, equip
from objectives.tasks.plan import Frame, plan
from objectives.tasks.protocol import NO_TARGET, PairFacts, Task, load_task, sample_targets, task_of
from objectives.tasks.text_to_text import TextToText
from objectives.tasks.texts import encode_inserted, spell_after_space
from tests.artefacts import small_tokenizer
from tests.objectives.tasks.pairs import EOS, OWNED, pair_batch
from tests.third_party import install_plugins


def test_a_task_is_found_by_its_name_and_by_a_preset():
    task = load_task("text_to_text", "led", {"global_attention": "query", "separator": "null"})
    assert task == TextToText(middle="<eos>", separator=None, global_attention="query", target_length=255)
    assert isinstance(task, Task)
    assert task_of("bart_ls") == ("text_to_text", "bart_ls")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("text_to_txt",),
            r"no task is called 'text_to_txt' \(did you mean 'text_to_text'\?\); installed: text_to_text",
        ),
        (("text_to_text", "bart"), r"task text_to_text has no preset 'bart' .*its presets: bart_ls, bart_ls_summary, "),
        (("text_to_text", None, {"querry": 1}), r"no option 'querry' \(did you mean 'query'\?\); its options: query, "),
        (
            ("text_to_text", None, {"query": "last"}),
            r"option query is 'last'; give none, first, every_block or decoder",
        ),
        (
            ("text_to_text", None, {"block": 32768, "query": "every_block"}),
            "block is 32768; give at most source_length",
        ),
        (
            ("text_to_text", None, {"query": "none", "global_attention": "query"}),
            "is 'query'; give another rule, or query",
        ),
        (("text_to_text", "led", {"global_attention": "separators"}), "give bos, or separator=<doc-sep> beside it"),
        (("text_to_text", None, {"targets": "all"}), "option targets is 'all'; give each, first or sampled"),
    ],
)
def test_wrong_names_and_options_are_answered_with_the_right_ones(arguments, message):
    with pytest.raises(FarspanError, match=message):
        load_task(*arguments)


def test_a_third_partys_task_is_found_with_options_and_checks(farspan_lead):
    assert task_of("brief") == ("lead_question", "brief")
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
    target = "tests.objectives.broken:Sound"
    install_plugins(tmp_path, "broken-tasks", {"farspan.tasks": {"sound": target}})
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        FarspanError, match=rf"^task sound: entry point {target} of broken-tasks makes Sound, which lac"
    ):
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


FRAME = Frame(
    source_length=60,
    target_length=20,
    block=60,
    before_source=1,
    before_target=0,
    middle=2,
    separator=1,
    end=1,
    query="source",
    query_tokens=8,
    separator_last=False,
    shares=False,
    handed_on=False,
    tails=False,
)

pairs = st.lists(
    st.tuples(st.integers(0, 12), st.lists(st.integers(0, 50), max_size=5), st.integers(-1, 40)), min_size=1, max_size=4
)


def planned(frame: Frame, pairs: list):
    queries, documents, targets = zip(*pairs, strict=True)
    targets = [NO_TARGET if size < 0 else size for size in targets]
    return plan(frame, np.array(queries, np.int64), Ragged.from_rows(documents, np.int64), np.array(targets, np.int64))


@given(pairs, st.sampled_from(["source", "target", None]), st.booleans(), st.booleans(), st.booleans(), st.booleans())
def test_limits_hold_and_what_is_cut_is_counted(pairs, query, shares, handed_on, tails, last):
    frame = replace(
        FRAME, query=query, shares=shares, handed_on=shares and handed_on, tails=tails, separator_last=last, block=30
    )
    found = planned(frame, pairs)
    assert (found.lengths.source <= frame.source_length).all()
    assert (found.lengths.target <= frame.target_length).all()
    for row, (question, documents, target) in enumerate(pairs):
        shown = min(question, 8) if query else 0
        assert found.queries[row] == shown
        assert found.lengths.cut.query[row] == (question - shown if query else 0)
        assert 0 <= found.lengths.cut.documents[row] <= sum(documents)
        if target < 0:
            assert found.lengths.target[row] == found.lengths.prompt[row]
        else:
            asked = shown + 2 if query == "target" and shown else 0
            assert found.lengths.target[row] == min(asked + target + 1, frame.target_length)


@given(pairs, st.booleans(), st.booleans())
def test_what_fits_is_shown_whole(pairs, shares, tails):
    wide = replace(
        FRAME, source_length=1000, block=1000, target_length=100, shares=shares, handed_on=shares, tails=tails
    )
    found = planned(wide, pairs)
    assert not np.concatenate([found.lengths.cut.documents, found.lengths.cut.target]).any()
    for row, (question, documents, _) in enumerate(pairs):
        head = 1 + (min(question, 8) + 2 if question else 0)
        assert found.lengths.source[row] == head + sum(documents) + max(len(documents) - 1, 0) + 1


@given(st.lists(st.integers(0, 50), min_size=1, max_size=6), st.integers(10, 120))
def test_shares_that_are_handed_on_fill_the_room_evenly(documents, length):
    """No document is cut while a longer part of another is shown; parts of cut ones differ by one token at most."""
    frame = replace(FRAME, source_length=length, block=length, query=None, shares=True, handed_on=True)
    found = planned(frame, [(0, documents, 1)])
    kept = found.kept.sum(1).tolist()
    room = max(length - 2 - (len(documents) - 1), 0)
    assert sum(kept) == min(sum(documents), room)
    cut = [size for size, whole in zip(kept, documents, strict=True) if size < whole]
    if cut:
        assert max(cut) - min(cut) <= 1
        assert max(kept) <= min(cut) + 1
        assert cut == sorted(cut, reverse=True), "the first ones get the rest"


def test_both_ends_of_a_cut_text_are_kept():
    frame = replace(FRAME, source_length=13, block=13, query=None, tails=True)
    found = planned(frame, [(0, [30], 1)])
    assert found.streams[:, 0].tolist() == [30, 6, 5, 11]
    assert found.lengths.cut.documents.tolist() == [19]


WORDS = "the quick brown fox jumps over lazy dogs while seven wizards observe strange lights".split()
TEXTS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=5).map(" ".join)


@lru_cache(maxsize=1)
def sentence_pieces():
    return train_sentencepiece(
        [f"question: {a} {b}? context: {b} {c}." for a in WORDS for b in WORDS for c in "ab"], 300
    )


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
