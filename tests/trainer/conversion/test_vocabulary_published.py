"""Training that goes on from T5, PEGASUS or BART finds the special tokens that these models have learned."""

from __future__ import annotations

import pytest
import torch
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    PegasusConfig,
    PegasusForConditionalGeneration,
    T5Config,
    T5ForConditionalGeneration,
)

from objectives.api.protocol import CorpusFacts, load_objective
from tests.published_tokenizers import bart_files, pegasus_files, t5_files, tokenizer_of
from trainer.conversion.convert import initial_model
from trainer.conversion.hugging_face import read_hugging_face
from trainer.conversion.model_folder import write_model_folder
from trainer.conversion.vocabulary import Vocabulary

_LAYERS = {f"{side}_{part}": size for side in ("encoder", "decoder") for part, size in (("layers", 1), ("ffn_dim", 24))}
_HEADS = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "d_model": 16, "max_position_embeddings": 16}
T5 = T5ForConditionalGeneration(T5Config(vocab_size=40, d_model=16, d_kv=8, num_heads=2, num_layers=1, d_ff=24))
PEGASUS = PegasusForConditionalGeneration(PegasusConfig(vocab_size=22, **_LAYERS, **_HEADS))
BART = BartForConditionalGeneration(BartConfig(vocab_size=18, **_LAYERS, **_HEADS, forced_eos_token_id=None))
LEARNED = [
    # T5's table has rows that its tokenizer has no ids for, as the released one has 28.
    (T5, t5_files, ("span", "t5"), {f"<sentinel-{k}>": f"<extra_id_{k}>" for k in range(10)}),
    (T5, t5_files, ("principal_sentences", "longt5_code"), {"<unk>": "<unk>"}),
    (PEGASUS, pegasus_files, ("principal_sentences", "pegasus"), {"<sent-mask>": "<mask_1>"}),
    (BART, bart_files, ("entity_pyramid", "primera"), {"<mask>": "<mask>"}),
]


@pytest.mark.parametrize(("model", "files", "preset", "names"), LEARNED, ids=["T5", "LongT5", "PEGASUS", "BART"])
def test_a_run_begins_with_the_learned_rows(model, files, preset, names, tmp_path):
    model.save_pretrained(tmp_path / "theirs")
    for name, content in files().items():
        (tmp_path / "theirs" / name).write_bytes(content)
    converted = read_hugging_face(tmp_path / "theirs")
    write_model_folder(converted, tmp_path / "ours")

    tokenizer = tokenizer_of(files())
    special = load_objective(*preset).validate(CorpusFacts(tokenizer.vocab_size, tokenizer.owned_tokens, 512, 400, 1))
    vocabulary = Vocabulary.of(special, tokenizer.fingerprint, converted.vocabulary.decoder_start)
    begun = initial_model(tmp_path / "ours", converted.config, vocabulary).state["tokens.weight"]

    assert len(begun) == special.vocab_size
    table, ids = model.get_input_embeddings().weight, tokenizer.owned_tokens
    for ours, theirs in {**names, "<pad>": "<pad>", "<eos>": "<eos>"}.items():
        assert special[ours] == ids[theirs]
        assert torch.equal(begun[special[ours]], table[ids[theirs]])
    words = [number for number in range(tokenizer.vocab_size) if number not in special.ids.values()]
    assert torch.equal(begun[words], table[words])
    # Sentinels beyond T5's own begin near the mean of those.
    further = special.sentinels[len(names) :].tolist()
    mean = begun[special.sentinels[: len(names)].tolist()].mean(0) if further else None
    for number in further:
        assert number >= tokenizer.vocab_size
        assert (begun[number] - mean).norm() < 0.5 * mean.norm()
