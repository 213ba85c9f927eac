"""Task ``text_to_text``: documents, and perhaps a query, as the source; an answer or summary as the target.

    query = none         <bos> prefix documents <eos>
    query = first        <bos> prefix query middle documents <eos>
    query = every_block  <bos> prefix query middle piece <eos> <bos> prefix query middle piece <eos> ...
    query = decoder      <bos> documents <eos>, and the decoder is given: prefix query middle

A text that is too long is cut, and the cut tokens are counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from corpora.errors import FarspanError
from corpora.schemas.pairs import PairBatch
from corpora.storage.ragged import Ragged, read_only
from corpora.tokenizers.protocol import Tokenizer
from objectives.api.examples import Examples
from objectives.api.options import check, check_choice, check_flag, check_whole, normalize, options_of
from objectives.api.protocol import Tools
from objectives.api.special_tokens import (
    BEGIN,
    DOCUMENT_BEGIN,
    DOCUMENT_END,
    DOCUMENT_SEPARATOR,
    END,
    PAD,
    SpecialTokens,
)
from objectives.tasks.kernels import BOS, NO_TOKEN, NONE, QUERY, SEPARATORS, fill_sources, fill_targets
from objectives.tasks.plan import Plan, Texts, divide_sources
from objectives.tasks.presets import PRESETS
from objectives.tasks.protocol import (
    NO_TARGET,
    SAMPLES,
    Cut,
    Lengths,
    PairFacts,
    Rendered,
    document_lengths,
    join_questions,
)
from objectives.tasks.texts import encode_inserted, spell_after_space

_SPECIAL = (DOCUMENT_SEPARATOR, END, BEGIN, DOCUMENT_BEGIN, DOCUMENT_END)
_TEXTS = ("prefix", "middle", "separator", "target_prefix")
_RULES = {"none": NONE, "bos": BOS, "query": QUERY, "separators": SEPARATORS}


@dataclass(frozen=True)
class TextToText:
    """Task ``text_to_text``: documents, and perhaps a query, become the source; an answer or summary the target.

    A text may be one of the special tokens ``<doc-sep>``, ``<eos>``, ``<bos>``, ``<doc-s>`` and ``</doc-s>``, or one of
    the tokenizer's own, such as mBART's languages; any other text is encoded.

    Attributes:
        query: place of the query: ``none``, ``first`` (before the documents), ``every_block`` (before each piece of the
            documents), or ``decoder`` (at the start of the target; the source does not depend on it).
        query_length: maximum positions of a query, including the ``<bos>`` before it and a special token in ``middle``;
            None: a query is never cut, and one that leaves no room is an error.
        block: positions of a block with ``query=every_block``, equal to the encoder's attention block.
        prefix: text before the query, or before the documents if there is no query.
        middle: text after the query; a pair without query has none.
        documents: ``joined`` to one text, or ``shares``: each has an equal share of the source.
        leftover: part of its share that a short document does not need: ``lost``, or ``handed_on`` to longer ones.
        separator: text between two documents.
        separator_last: True if a separator also follows the last document.
        begin, end: True if ``<bos>`` starts and ``<eos>`` ends the source, and each block with ``query=every_block``.
        target_begin: True if targets start with ``<bos>``; all end with ``<eos>``.
        target_prefix: text before a target's query and answer, such as the target's language in mBART-50.
        target_space: True if targets start with a space; byte-level BPE then spells their first word as documents do.
        global_attention: source positions with global attention: ``none``; ``bos``, the first; ``query``, all up to the
            end of the query, in each block; or ``separators``, the first and those of all separators.
        source_length, target_length: maximum positions of encoder and decoder.
        keep: part that a cut text of documents keeps: its ``head``, or ``head_and_tail`` in equal parts.
        targets: training examples of a pair with several targets: one for ``each``, one with the ``first``, or one with
            a target ``sampled`` again in every epoch.
        questions: maximum number of questions about the same documents that an example asks together; its target has
            their answers in the same order. ``<doc-sep>`` stands between two questions, and between two answers.
    """

    query: str = "first"
    query_length: int | None = None
    block: int = 1024
    prefix: str | None = None
    middle: str | None = None
    documents: str = "joined"
    leftover: str = "lost"
    separator: str | None = DOCUMENT_SEPARATOR
    separator_last: bool = False
    begin: bool = True
    end: bool = True
    target_begin: bool = False
    target_prefix: str | None = None
    target_space: bool = False
    global_attention: str = "none"
    source_length: int = 16384
    target_length: int = 1024
    keep: str = "head"
    targets: str = "each"
    questions: int = 1
    _encoded: Mapping[str, tuple[int, ...]] | None = field(default=None, init=False, repr=False, compare=False)
    _tokenizer: Tokenizer | None = field(default=None, init=False, repr=False, compare=False)

    name: ClassVar[str] = "text_to_text"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = PRESETS

    def __post_init__(self) -> None:
        check_choice(self, "query", "none", "first", "every_block", "decoder")
        check_choice(self, "documents", "joined", "shares")
        check_choice(self, "leftover", "lost", "handed_on")
        check_choice(self, "global_attention", *_RULES)
        check_choice(self, "keep", "head", "head_and_tail")
        check_choice(self, "targets", *SAMPLES)
        check_flag(self, "separator_last", "begin", "end", "target_begin", "target_space")
        check_whole(self, "source_length", 8)
        check_whole(self, "target_length", 2)
        check_whole(self, "block", 4)
        check_whole(self, "questions", 1)
        one = self.questions == 1 or self.targets != "each"
        check(self, "questions", one, "1, or targets=first or sampled beside it")
        check_whole(self, "query_length", 1, null=True)
        for option in _TEXTS:
            value = getattr(self, option)
            check(self, option, value is None or isinstance(value, str), "a text or null")
            normalize(self, **{option: value or None})
        fits = self.query != "every_block" or self.block <= self.source_length
        check(self, "block", fits, f"at most source_length, {self.source_length}")
        if self.query_length is not None and self.query != "none":
            option, room = self._limit
            wanted = f"at most {room - 2}, since {option} is {room}, or null"
            check(self, "query_length", self.query_length <= room - 2, wanted)
        shown = self.global_attention != "query" or self._in_source
        check(self, "global_attention", shown, "another rule, or query=first or every_block beside it")
        possible = self.global_attention != "separators" or self.separator is not None
        check(self, "global_attention", possible, f"bos, or separator={DOCUMENT_SEPARATOR} beside it")

    @property
    def options(self) -> dict[str, Any]:
        return options_of(self)

    @property
    def samples(self) -> str:
        return self.targets

    @property
    def shares_sources(self) -> bool:
        return self.query in ("none", "decoder")

    def with_tools(self, tools: Tools) -> TextToText:
        """Return a copy with the ids of its texts."""
        held = copy(self)
        plain = (None, *_SPECIAL, *tools.tokenizer.owned_tokens)
        texts = {option: getattr(self, option) for option in _TEXTS if getattr(self, option) not in plain}
        encoded = {
            name: encode_inserted(tools.tokenizer, text, name.endswith("prefix")) for name, text in texts.items()
        }
        normalize(held, _encoded=encoded, _tokenizer=tools.tokenizer)
        return held

    def validate(self, facts: PairFacts) -> SpecialTokens:
        between = DOCUMENT_SEPARATOR if self.questions > 1 else None
        texts = [*(getattr(self, option) for option in _TEXTS), between]
        special = [name for name in (*_SPECIAL, *facts.owned_tokens) if name in texts]
        table = SpecialTokens.append(facts.vocab_size, facts.owned_tokens, special)
        longest = np.array([facts.max_query_tokens])
        nothing = Ragged(np.empty(0, np.int64), np.zeros(2, np.int64))
        self._plan(self._texts(table), longest, nothing, self._longest_targets(np.array([facts.max_target_tokens])))
        return table

    def lengths(self, queries: np.ndarray, documents: Ragged, targets: np.ndarray) -> Lengths:
        """Compute rendered lengths and cuts; with ``target_space``, a target counts one token more."""
        return self._plan(self._texts(None), queries, documents, self._longest_targets(targets)).lengths

    def _longest_targets(self, targets: np.ndarray) -> np.ndarray:
        return targets + (self.target_space & (targets != NO_TARGET))

    def render(self, batch: PairBatch, chosen: np.ndarray, special: SpecialTokens) -> Rendered:
        """Render n pairs, or the examples that they make together, in one compiled pass."""
        if (chosen >= np.diff(batch.target_offsets)).any():
            raise IndexError("the index of a chosen target is outside its pair")
        if self.target_space and (chosen >= 0).any():
            batch = replace(batch, targets=spell_after_space(self._need_tokenizer("a target"), batch.targets))
        if batch.example_offsets is not None:
            batch, chosen = join_questions(batch, chosen, special[DOCUMENT_SEPARATOR])
        texts, documents = self._texts(special), document_lengths(batch)
        target_rows = batch.target_offsets[:-1] + np.maximum(chosen, 0)
        targets = np.full(len(batch), NO_TARGET, np.int64)
        targets[chosen >= 0] = batch.targets.lengths[target_rows[chosen >= 0]]
        shown = self._plan(texts, batch.queries.lengths, documents, targets, batch.pair_ids)
        queries = (_ids(batch.queries), batch.queries.offsets[:-1], shown.queries)
        source, marks = self._sources(batch, shown, queries, texts, special)
        lengths = shown.lengths
        target = np.empty((len(batch), lengths.target.max(initial=0)), np.int32)
        if self.query != "decoder":
            queries = (queries[0], queries[1], np.zeros(len(batch), np.int64))
        starts = batch.targets.offsets[np.minimum(target_rows, len(batch.targets))]
        answers = (_ids(batch.targets), starts, shown.targets)
        ends = (special[PAD], special[END])
        fill_targets(queries, answers, (texts.before_target, texts.middle), ends, lengths.target, target)
        examples = Examples(
            sequence_ids=batch.keys,
            source_ids=source,
            source_lengths=lengths.source.astype(np.int32),
            target_ids=target,
            target_lengths=lengths.target.astype(np.int32),
            global_positions=marks,
            prompt_lengths=lengths.prompt.astype(np.int32) if self.query == "decoder" else None,
        )
        return Rendered(examples, lengths.cut)

    def _sources(
        self, batch: PairBatch, shown: Plan, queries: tuple[np.ndarray, ...], texts: Texts, special: SpecialTokens
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Fill source ids ``(n, S)`` int32 and, unless the rule is none, global positions ``(n, S)`` bool."""
        tokens = batch.document_tokens
        document_rows = batch.pair_documents.compact()
        rule = _RULES[self.global_attention]
        source = np.empty((len(batch), shown.lengths.source.max(initial=0)), np.int32)
        marks = np.zeros(source.shape if rule != NONE else (0, 0), bool)
        if not self._in_source:
            queries = (queries[0], queries[1], np.zeros(len(batch), np.int64))
        documents = (
            tokens.offsets[document_rows.values],
            tokens.lengths[document_rows.values],
            shown.kept,
            document_rows.offsets,
        )
        fill_sources(
            read_only(tokens.values)[0],
            documents,
            shown.streams,
            queries,
            (texts.before_source, texts.middle, texts.separator),
            (special[PAD], special[END] if self.end else NO_TOKEN, rule),
            shown.pieces,
            shown.lengths.source,
            source,
            marks,
        )
        return source, marks if rule != NONE else None

    @property
    def _in_source(self) -> bool:
        return self.query in ("first", "every_block")

    @property
    def _limit(self) -> tuple[str, int]:
        """Name and value of the option that limits a query, in positions."""
        option = {"every_block": "block", "decoder": "target_length"}.get(self.query, "source_length")
        return option, getattr(self, option)

    def _plan(
        self,
        texts: Texts,
        queries: np.ndarray,
        documents: Ragged,
        targets: np.ndarray,
        pair_ids: Sequence[str] | None = None,
    ) -> Plan:
        """Divide the positions of source and target, from lengths alone; arguments as for ``lengths``."""
        documents = documents.compact()
        block = self.block if self.query == "every_block" else self.source_length
        if self.query == "none":
            queries = np.zeros_like(queries)
        shown = queries if self.query_length is None else np.minimum(queries, max(self.query_length - self._around, 0))
        question = np.where(shown > 0, shown + len(texts.middle), 0)
        head = len(texts.before_source) + question * self._in_source
        lead = len(texts.before_target) + question * (self.query == "decoder")
        shares, handed_on = self.documents == "shares", self.leftover == "handed_on"
        choice = (len(texts.separator), self.separator_last, shares, handed_on, self.keep == "head_and_tail")
        source, kept, streams = divide_sources(documents, head, self.source_length, block, int(self.end), choice)
        pieces, answer_room = block - head - self.end, self.target_length - lead - 1
        answers = np.minimum(targets, answer_room)
        prompt = lead * (self.query == "decoder")
        ends = np.append(0, np.cumsum(documents.values))[documents.offsets]
        cut = Cut(queries - shown, np.diff(ends) - streams[3], targets - answers)
        target = np.where(targets == NO_TARGET, prompt, lead + answers + 1)
        least = answer_room if self.query == "decoder" else pieces
        result = Plan(Lengths(source, target, prompt, cut), least, shown, answers, pieces, kept, streams)
        if len(queries) and least.min() < 1:
            self._refuse(int(least.argmin()), result, pair_ids)
        return result

    def _refuse(self, row: int, result: Plan, pair_ids: Sequence[str] | None) -> None:
        """Raise an error for a query, or texts around it, that leave no room."""
        option, positions = self._limit
        size, most = int(result.queries[row]), int(result.queries[row] + result.room[row]) - 1
        if size == 0 or most < 1:
            raise FarspanError(
                f"{self.name}: prefix and middle leave no room in {option}, {positions:,} positions; raise {option}, "
                "or shorten these texts"
            )
        whose = "the longest query" if pair_ids is None else f"the query of pair {pair_ids[row]!r}"
        raise FarspanError(
            f"{self.name}: {whose} has {size:,} tokens, which leaves no room in {option}, {positions:,} positions; "
            f"raise {option}, or set query_length to at most {most + self._around:,} to have longer queries cut"
        )

    @property
    def _around(self) -> int:
        """Positions that ``query_length`` counts in addition to the tokens of a query."""
        return int(self.begin and self._in_source) + int(self._is_special(self.middle))

    def _is_special(self, text: str | None) -> bool:
        return text in _SPECIAL or (self._tokenizer is not None and text in self._tokenizer.owned_tokens)

    def _texts(self, special: SpecialTokens | None) -> Texts:
        def ids(option: str) -> list[int]:
            text = getattr(self, option)
            if text is None:
                return []
            if self._is_special(text):
                return [self._id(text, special)]
            self._need_tokenizer(f"the text {text!r}")
            return list((self._encoded or {})[option])

        prefix = ids("prefix")
        source = [self._id(BEGIN, special)] * self.begin + prefix * (self.query != "decoder")
        target = (
            [self._id(BEGIN, special)] * self.target_begin + ids("target_prefix") + prefix * (self.query == "decoder")
        )
        return Texts(*(np.array(one, np.int32) for one in (source, target, ids("middle"), ids("separator"))))

    def _need_tokenizer(self, what: str) -> Tokenizer:
        if self._tokenizer is None:
            raise FarspanError(f"{self.name}: {what} needs the tokenizer; give with_tools(Tools(tokenizer))")
        return self._tokenizer

    def _id(self, name: str, special: SpecialTokens | None) -> int:
        if special is None:
            return NO_TOKEN
        if name not in special.ids:
            raise FarspanError(
                f"{self.name}: {name} is none of the special tokens: {', '.join(list(special.ids)[:12])}"
            )
        return special[name]


def _ids(rows: Ragged) -> np.ndarray:
    """Convert the tokens of short texts to int32."""
    return rows.values.astype(np.int32)
