"""Sources and targets are the published systems', token for token: Hugging Face's tokenizer reads the strings of the
papers' figures, with the special tokens in them, and gives the same ids."""

import json
from dataclasses import replace

import numpy as np
import pytest
from tokenizers import Tokenizer

from corpora.storage.ragged import Ragged
from objectives.api.masks import IN_SOURCE, IN_TARGET, MaskBatch
from objectives.api.protocol import CorpusFacts, load_objective
from tests.factories import make_sequences
from tests.published_tokenizers import bart_files, pegasus_files, t5_files, tokenizer_of

TEXT = "one two three . four five six . seven eight nine ."
SPANS = [(2, 2), (6, 1)]
SENTENCES = [(4, 4)]
FRAMES = [
    # Raffel et al. 2020, figure 2.
    (
        t5_files,
        ("span", "t5"),
        SPANS,
        "one two <extra_id_0> four five <extra_id_1> . seven eight nine . </s>",
        "<extra_id_0> three . <extra_id_1> six </s>",
    ),
    # Zhang et al. 2020, figure 1.
    (
        pegasus_files,
        ("principal_sentences", "pegasus"),
        SENTENCES,
        "one two three . <mask_1> seven eight nine . </s>",
        "four five six . </s>",
    ),
    # longt5/preprocessors.py: PEGASUS's mask is id 2, which the vocabulary of T5 calls <unk>.
    (
        t5_files,
        ("principal_sentences", "longt5_code"),
        SENTENCES,
        "one two three . <unk> seven eight nine . </s>",
        "four five six . </s>",
    ),
    # utils/pretrain_preprocess.py, over the tokenizer of LED; <doc-sep> is the first id behind it.
    (
        bart_files,
        ("entity_pyramid", "primera"),
        SENTENCES,
        "<s> one two three . <mask> seven eight nine . <doc-sep> </s>",
        "<s> four five six . </s>",
    ),
]


@pytest.mark.parametrize(
    ("files", "preset", "spans", "source", "target"), FRAMES, ids=["T5", "PEGASUS", "LongT5", "PRIMERA"]
)
def test_examples_are_those_of_the_published_system(files, preset, spans, source, target):
    content = files()
    tokenizer = tokenizer_of(content)
    theirs = Tokenizer.from_str(content["tokenizer.json"].decode())
    assert tokenizer.vocab_size == theirs.get_vocab_size()
    theirs.add_special_tokens([token for token in ("<doc-sep>",) if token in source])

    tokens = tokenizer.encode([TEXT])
    batch = replace(make_sequences([len(tokens[0])]), tokens=tokens)
    starts, lengths = (Ragged.from_rows([column], np.int32) for column in zip(*spans, strict=True))
    flags = Ragged(np.full(len(spans), IN_SOURCE | IN_TARGET, np.uint8), starts.offsets)
    unknown = np.zeros(1, np.int32)
    masks = MaskBatch(batch.sequence_ids, starts, lengths, flags, unknown, unknown)
    objective = load_objective(*preset)
    special = objective.validate(CorpusFacts(tokenizer.vocab_size, tokenizer.owned_tokens, 64, 40, 1))

    examples = objective.render(batch, masks, special)
    for found, expected in ((examples.source_ids, source), (examples.target_ids, target)):
        # The space before a special token is for the eye; a piece begins with its own.
        assert found[0].tolist() == theirs.encode(expected.replace(" <", "<"), add_special_tokens=False).ids


def test_the_layouts_are_those_of_the_published_tokenizers():
    """Ids that published code and configurations name, scaled down: the last of T5's are its sentinels, from 0 on;
    PEGASUS has pad 0, eos 1, sentence mask 2 and word mask 3; BART's mask is its last id."""
    t5, pegasus, bart = (tokenizer_of(files()).owned_tokens for files in (t5_files, pegasus_files, bart_files))
    assert [t5[name] for name in ("<pad>", "<eos>", "<unk>", "<extra_id_0>", "<extra_id_9>")] == [0, 1, 2, 25, 16]
    assert [pegasus[name] for name in ("<pad>", "<eos>", "<mask_1>", "<mask>", "<unk>")] == [0, 1, 2, 3, 8]
    assert [bart[name] for name in ("<bos>", "<pad>", "<eos>", "<unk>", "<mask>")] == [0, 1, 2, 3, 17]
    assert json.loads(bart_files()["special_tokens_map.json"])["mask_token"] == "<mask>"
