"""Cross-document language modelling (CDLM): masked language modelling over related documents, for an encoder alone.

Source: Caciularu et al. 2021 (arXiv 2101.00406), section 2. A row has several documents on one topic, each between
``<doc-s>`` and ``</doc-s>``. Every text token is chosen with the same probability; 80 % of the chosen tokens are shown
as ``<mask>``, 10 % as a random token and 10 % unchanged (BERT: Devlin et al. 2019, section 3.1). Chosen positions have
global attention, so that they can use every document.

The corpus puts related documents into one row, in random order: ``farspan corpus related --order shuffle
--min-documents 3 --room-per-document 2``. A row of one document is masked like any other, which is plain masked
language modelling.

Paper and published code differ in two points; presets ``paper`` and ``code`` follow one each:

- global attention: on the chosen positions (paper), or also on as many positions from the first on (code);
- begin and end: ``<bos>`` and ``<eos>`` around a row in preset ``paper``, neither in ``code``.

docs/objectives.md lists the parts of the code that are not reproduced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from corpora.errors import FarspanError
from corpora.keyed import id_keys
from corpora.schemas.sequences import SequenceBatch
from corpora.storage.ragged import Ragged
from objectives.api.examples import Examples
from objectives.api.masks import IN_SOURCE, IN_TARGET, REPLACED, VISIBLE, MaskBatch
from objectives.api.options import (
    check,
    check_chances,
    check_choice,
    check_flag,
    equipped,
    is_number,
    normalize,
    options_of,
)
from objectives.api.protocol import CorpusFacts, Tools
from objectives.api.special_tokens import BEGIN, DOCUMENT_BEGIN, DOCUMENT_END, END, MASK, SpecialTokens
from objectives.draws.independent import choose_tokens, draw_ids
from objectives.rendering.layout import Layout, with_global_positions
from objectives.rendering.reconstruct import reconstruct_labels
from objectives.rendering.render import render_labels

_FLAGS = np.array([IN_SOURCE | IN_TARGET, REPLACED | IN_TARGET, VISIBLE | IN_TARGET], np.uint8)  # as in treatments


@dataclass(frozen=True)
class CrossDocument:
    """Objective ``cross_document``.

    Attributes:
        mlm_probability: probability that a text token is chosen, above 0.
        treatments: probabilities that a chosen token is shown as ``<mask>``, as a random text token of the vocabulary
            (possibly the same), or unchanged.
        begin, end: True if a row starts with ``<bos>``, and ends with ``<eos>``.
        global_attention: ``none``, ``bos``, ``separators``, ``masked`` or ``masked_and_prefix``.
    """

    mlm_probability: float = 0.15
    treatments: Sequence[float] = (0.8, 0.1, 0.1)
    begin: bool = True
    end: bool = True
    global_attention: str = "masked"
    _tools: Tools | None = field(default=None, init=False, repr=False, compare=False)

    name: ClassVar[str] = "cross_document"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "paper": {"global_attention": "masked"},
        "code": {"global_attention": "masked_and_prefix", "begin": False, "end": False},
    }

    def __post_init__(self) -> None:
        chance = self.mlm_probability
        check(self, "mlm_probability", is_number(chance) and 0 < chance <= 1, "a number above 0, at most 1")
        shares = check_chances(self, "treatments", "mask", "random", "as it is")
        check_flag(self, "begin", "end")
        check_choice(self, "global_attention", "none", "bos", "separators", "masked", "masked_and_prefix")
        normalize(self, mlm_probability=float(chance), treatments=shares)

    @property
    def options(self) -> dict[str, Any]:
        """All options as JSON values."""
        return options_of(self)

    @property
    def layout(self) -> Layout:
        begin, end = BEGIN if self.begin else None, END if self.end else None
        return Layout(begin, end, before=DOCUMENT_BEGIN, after=DOCUMENT_END)

    def with_tools(self, tools: Tools) -> CrossDocument:
        """Return a copy with the tokenizer, from whose vocabulary random tokens are drawn."""
        return equipped(self, tools)

    def validate(self, facts: CorpusFacts) -> SpecialTokens:
        """Check that a row has room for the tokens around documents, and number the special tokens."""
        self.layout.check(self.name, facts)
        if self._tools and self._tools.tokenizer.vocab_size != facts.vocab_size:
            raise FarspanError(
                f"cross_document: the tokenizer has {self._tools.tokenizer.vocab_size} ids, the corpus's has "
                f"{facts.vocab_size}; give the one in the corpus's folder"
            )
        return SpecialTokens.append(facts.vocab_size, facts.owned_tokens, [*self.layout.names, MASK])

    def longest(self, batch: SequenceBatch) -> tuple[np.ndarray, np.ndarray]:
        """Return the source and target lengths of every draw, ``(n,)`` int64 each; targets are empty (labels only)."""
        tokens, parts = batch.tokens.lengths.astype(np.int64), batch.document_starts.lengths
        return tokens + self.layout.around(parts), np.zeros_like(tokens)

    def mask(self, batch: SequenceBatch, key: bytes) -> MaskBatch:
        """Choose tokens of n rows, one span each, by (key, options, sequence id, length) of the row."""
        ids = batch.ids()
        tokens = batch.tokens.lengths
        bounds = np.rint(np.cumsum(self.treatments) * self.mlm_probability * 2**32).astype(np.uint64)
        room, counts = int(tokens.sum()) + 1, np.empty(len(batch), np.int64)
        places, kinds = np.empty(room, np.int32), np.empty(room, np.uint8)
        choose_tokens(id_keys(key, ids), tokens, bounds, places, kinds, counts)
        spans = Ragged.from_lengths(
            places[: counts.sum()].copy(), counts
        )  # a copy, so that the rest of the scratch is freed
        flags = _FLAGS[kinds[: len(spans.values)]]
        return MaskBatch(
            batch.sequence_ids,
            span_starts=spans,
            span_lengths=Ragged(np.ones_like(spans.values), spans.offsets),
            span_flags=Ragged(flags, spans.offsets),
            source_lengths=(tokens + self.layout.around(batch.document_starts.lengths)).astype(np.int32),
            target_lengths=np.zeros(len(batch), np.int32),
            replacements=self._replacements(id_keys(key + b"replacements", ids), flags & REPLACED != 0, spans.offsets),
        )

    def _replacements(self, keys: np.ndarray, replaced: np.ndarray, offsets: np.ndarray) -> Ragged | None:
        """Draw a random text token for every ``replaced`` span."""
        if self.treatments[1] == 0:
            return None
        if self._tools is None:
            raise FarspanError(
                "cross_document: random tokens are drawn from the tokenizer's vocabulary; give the tokenizer, "
                "objective.with_tools(Tools(tokenizer)), or treatments without random tokens, as [0.9, 0, 0.1]"
            )
        tokenizer = self._tools.tokenizer
        before = np.append(0, np.cumsum(replaced))  # (spans + 1,)
        counts = np.diff(before[offsets])
        drawn = np.empty(counts.sum(), np.int32)
        draw_ids(keys, counts, _text_ids(tokenizer.vocab_size, frozenset(tokenizer.owned_tokens.values())), drawn)
        return Ragged.from_lengths(drawn, counts)

    def render(
        self, batch: SequenceBatch, masks: MaskBatch, special: SpecialTokens, *, segment_ids: bool = False
    ) -> Examples:
        """Render source and labels, with an empty target."""
        examples = render_labels(batch, masks, special, self.layout, mask=MASK, segment_ids=segment_ids)
        return with_global_positions(examples, special, self.global_attention, self.layout)

    def reconstruct(self, examples: Examples, masks: MaskBatch, special: SpecialTokens) -> Ragged:
        """Recover the text of every row, rows of int32, from the output of ``render``."""
        return reconstruct_labels(examples, masks, special, self.layout)


@lru_cache(maxsize=4)
def _text_ids(vocab_size: int, special: frozenset[int]) -> np.ndarray:
    """Return the ids of a vocabulary that are not special tokens, ``(v,)`` int32."""
    return np.setdiff1d(np.arange(vocab_size, dtype=np.int32), np.array(sorted(special), np.int32))
