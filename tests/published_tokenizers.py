"""Small tokenizers laid out as the published ones of Hugging Face: the same special tokens in the same places."""

import json

import tokenizers

from corpora.tokenizers.huggingface import HuggingFaceTokenizer, special_roles

WORDS = [f"\u2581{word}" for word in "one two three four five six seven eight nine ten eleven twelve .".split()]
T5_SENTINELS = 10  # 100 in T5
PEGASUS_RESERVED = 6  # 103 in PEGASUS


def t5_files() -> dict[str, bytes]:
    """Pieces 0 to 15, then ``<extra_id_9>`` (16) to ``<extra_id_0>`` (25)."""
    sentinels = [f"<extra_id_{number}>" for number in reversed(range(T5_SENTINELS))]
    roles = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    return _files(["<pad>", "</s>", "<unk>", *WORDS, *sentinels], 2, sentinels, roles)


def pegasus_files() -> dict[str, bytes]:
    """``<mask_1>`` for a sentence (2), ``<mask_2>`` for a word (3), reserved ids, ``<unk>`` (8), then pieces."""
    reserved = [f"<unk_{number}>" for number in range(2, PEGASUS_RESERVED)]
    roles = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>", "mask_token": "<mask_2>"}
    pieces = ["<pad>", "</s>", "<mask_1>", "<mask_2>", *reserved, "<unk>", *WORDS]
    return _files(pieces, pieces.index("<unk>"), ["<mask_1>", "<mask_2>", *reserved], roles)


def bart_files() -> dict[str, bytes]:
    """``<s>`` (0), ``<pad>``, ``</s>``, ``<unk>``, pieces, and ``<mask>`` as the last id."""
    roles = {
        "bos_token": "<s>",
        "pad_token": "<pad>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "mask_token": "<mask>",
    }
    return _files(["<s>", "<pad>", "</s>", "<unk>", *WORDS, "<mask>"], 3, ["<mask>"], roles)


def tokenizer_of(files: dict[str, bytes]) -> HuggingFaceTokenizer:
    """The tokenizer in such a folder's files."""
    roles = special_roles(json.loads(files["special_tokens_map.json"]))
    return HuggingFaceTokenizer(files["tokenizer.json"], roles)


def _files(pieces: list[str], unknown: int, special: list[str], roles: dict[str, str]) -> dict[str, bytes]:
    scores = [(piece, 0.0 if piece in special else -float(number)) for number, piece in enumerate(pieces)]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.Unigram(scores, unk_id=unknown))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    tokenizer.decoder = tokenizers.decoders.Metaspace()
    tokenizer.add_special_tokens([*dict.fromkeys(roles.values()), *special])
    assert tokenizer.get_vocab_size(with_added_tokens=True) == len(pieces)
    return {
        "tokenizer.json": tokenizer.to_str().encode(),
        "special_tokens_map.json": json.dumps(roles).encode(),
        "tokenizer_config.json": json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}).encode(),
    }
