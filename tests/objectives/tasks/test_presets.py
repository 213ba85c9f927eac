"""The presets against plain restatements of what each published system feeds its model."""

import numpy as np
import pytest

from objectives.api.protocol import Tools, equip
from objectives.api.special_tokens import SpecialTokens
from objectives.tasks.presets import PRESETS
from objectives.tasks.protocol import NO_TARGET, PairFacts, load_task
from tests.artefacts import small_tokenizer
from tests.objectives.tasks.pairs import pair_batch
from tests.objectives.tasks.test_tasks import WORDS, encoded, sentence_pieces

RNG = np.random.default_rng(0)
TEXT = " ".join(RNG.choice(WORDS, 9000))  # longer than every preset's source
SUMMARY = " ".join(RNG.choice(WORDS, 800))
QUERY = " ".join(RNG.choice(WORDS, 4))


def rendered(preset, tokenizer, query=QUERY, texts=(TEXT,), options=None, answer=SUMMARY):
    """Source, target and global positions of one pair, and the special tokens."""
    task = equip(load_task("text_to_text", preset, options), Tools(tokenizer))
    facts = PairFacts(tokenizer.vocab_size, tokenizer.owned_tokens)
    batch = pair_batch(
        [[encoded(tokenizer, text) for text in texts]], [encoded(tokenizer, query)], [[encoded(tokenizer, answer)]]
    )
    special = task.validate(facts)
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


def test_pegasus_x_and_longt5_are_their_pipelines():
    tokenizer = sentence_pieces()
    source, target, marks, special = rendered("longt5_qa", tokenizer, answer="seven wizards")
    assert source == seqio(tokenizer, special, f"question: {QUERY} context: {TEXT}", 16384)
    assert target == seqio(tokenizer, special, "seven wizards", 128)
    assert marks is None
    source, target, _, special = rendered("longt5_summary", tokenizer)
    assert source == seqio(tokenizer, special, f"summarize: {TEXT}", 16384)
    assert target == seqio(tokenizer, special, SUMMARY, 512)
    tokenizer = small_tokenizer()
    source, target, marks, special = rendered("pegasus_x", tokenizer)
    assert source == seqio(tokenizer, special, f"{QUERY}\n\n{TEXT}", 16384)
    assert target == seqio(tokenizer, special, SUMMARY, 256)
    assert marks is None


def test_bart_ls_summaries_have_no_begin():
    tokenizer = small_tokenizer()
    source, target, marks, special = rendered("bart_ls_summary", tokenizer)
    assert source == seqio(tokenizer, special, TEXT, 16384)
    assert target == seqio(tokenizer, special, SUMMARY, 1024)
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
        task = equip(load_task("text_to_text", preset), Tools(tokenizer))
        special = task.validate(PairFacts(tokenizer.vocab_size, tokenizer.owned_tokens, 20, 50))
        examples = task.render(pair_batch([[[9]]], [[5]], [[]]), np.array([NO_TARGET]), special).examples
        assert examples.target_ids.shape == (1, 1 if task.query == "decoder" else 0)  # the question alone
        assert 9 in examples.source_ids
