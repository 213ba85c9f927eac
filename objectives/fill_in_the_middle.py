"""Fill in the middle (Bavarian et al. 2022, arXiv 2207.14255): the target is the middle of a document.

Two cuts, uniform over the characters of a document's part in the row, give prefix, middle and suffix; each cut moves to
the next token boundary. So documents are cut into rows first ("context level"), and no middle loses its end. With the
sentinels P, S and M, the source is

- ``P prefix S suffix M`` (PSM), or
- ``P S suffix M prefix`` (SPM, the paper's variant 2) or ``S suffix P prefix M`` (its variant 1),

and the target the middle and an end token: source and target together are the published order of a decoder's row. In a
row of several documents, one is cut, drawn by its tokens; the others precede it. Rows that are not cut are plain text
for a decoder: the source is empty, and the target is the row.

A mask row has one span, the middle; it is marked in the source with PSM only. A row that is not cut has a span for each
document, all of its text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from corpora.errors import FarspanError
from corpora.keyed import id_keys
from corpora.schemas.sequences import SequenceBatch
from corpora.storage.ragged import Ragged
from objectives.api.examples import Examples
from objectives.api.masks import IN_SOURCE, IN_TARGET, MaskBatch
from objectives.api.options import (
    check,
    check_choice,
    check_flag,
    check_whole,
    equipped,
    is_number,
    normalize,
    options_of,
)
from objectives.api.protocol import CorpusFacts, Tools
from objectives.api.special_tokens import BEGIN, END, PAD, SpecialTokens, find_owned_id
from objectives.rendering.layout import Layout

_ORDERS = {"psm": "PpSsM", "spm1": "SsPpM", "spm2": "PSsMp"}  # sentinels P, S, M; prefix p and suffix s


@dataclass(frozen=True)
class FillInTheMiddle:
    """Objective ``fill_in_the_middle``, for code and other text that is edited; it needs the corpus's tokenizer.

    Attributes:
        rate: share of rows that are cut; the others are plain text, all of it target.
        spm: share of the cut rows in the order suffix, prefix, middle; 0.5 is the paper's joint training.
        spm_variant: 1, or 2: the prefix directly before the middle.
        prefix, suffix, middle: sentinels, by the tokenizer's name of a special token.
        end: token after a middle, and after plain text.
        append: True to append sentinels that the tokenizer does not have as special tokens; else they are an error.
        begin: True if the source starts with ``<bos>``.
        separator: ``<eos>`` between two documents, or None.
        target_length: decoder positions, including the end token; longer middles lose tokens to their prefix, and
            longer rows are always cut. None for as many as needed.
    """

    rate: float = 0.5
    spm: float = 0.5
    spm_variant: int = 2
    prefix: str = "<fim_prefix>"
    suffix: str = "<fim_suffix>"
    middle: str = "<fim_middle>"
    end: str = END
    append: bool = False
    begin: bool = False
    separator: str | None = END
    target_length: int | None = None
    _tools: Tools | None = field(default=None, init=False, repr=False, compare=False)

    name: ClassVar[str] = "fill_in_the_middle"
    global_attention: ClassVar[str] = "none"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        # Li et al. 2023 (StarCoder) and Allal et al. 2023 (SantaCoder).
        "starcoder": {"rate": 0.5, "spm": 0.5},
        # Roziere et al. 2023: half of the cut rows in either order.
        "codellama": {
            "rate": 0.9,
            "spm": 0.5,
            "prefix": "▁<PRE>",
            "suffix": "▁<SUF>",
            "middle": "▁<MID>",
            "end": "▁<EOT>",
        },
        # Guo et al. 2024 (DeepSeek-Coder): PSM alone.
        "deepseek_coder": {
            "rate": 0.5,
            "spm": 0.0,
            "prefix": "<｜fim▁begin｜>",
            "suffix": "<｜fim▁hole｜>",
            "middle": "<｜fim▁end｜>",
        },
        # The spelling of Qwen's coders and CodeGemma; rate and shares are the defaults.
        "qwen_coder": {"prefix": "<|fim_prefix|>", "suffix": "<|fim_suffix|>", "middle": "<|fim_middle|>"},
    }

    def __post_init__(self) -> None:
        for option in ("rate", "spm"):
            value = getattr(self, option)
            check(self, option, is_number(value) and 0 <= value <= 1, "a number from 0 to 1")
        check(self, "spm_variant", self.spm_variant in (1, 2), "1 or 2")
        check_flag(self, "append", "begin")
        check_choice(self, "separator", END, None)
        names = (self.prefix, self.suffix, self.middle)
        for option, value in zip(("prefix", "suffix", "middle", "end"), (*names, self.end), strict=True):
            check(self, option, isinstance(value, str) and value not in ("", PAD, BEGIN), "the name of a token")
        check(self, "middle", len({*names, self.end}) == 4, "a sentinel unlike the others and the end")
        check_whole(self, "target_length", least=2, null=True)
        normalize(self, rate=float(self.rate), spm=float(self.spm))

    @property
    def options(self) -> dict[str, Any]:
        """All options as JSON values."""
        return options_of(self)

    @property
    def layout(self) -> Layout:
        return Layout(BEGIN if self.begin else None, end=None, between=self.separator)

    def with_tools(self, tools: Tools) -> FillInTheMiddle:
        """Return a copy with the tokenizer, which says where the characters of a text are."""
        return equipped(self, tools)

    def validate(self, facts: CorpusFacts) -> SpecialTokens:
        """Check the room for sentinels, and that each is a special token of the tokenizer."""
        self.layout.check(self.name, facts, more=2)  # three sentinels for at least one token of the middle
        names = [self.prefix, self.suffix, self.middle, self.end]
        lacking = [name for name in names if name != END and find_owned_id(facts.owned_tokens, name) is None]
        if lacking and not self.append:
            raise FarspanError(
                f"fill_in_the_middle: sentinel {lacking[0]} is no special token of the tokenizer, so it would be "
                f"ordinary text; it has {', '.join(list(facts.owned_tokens)[:12])}; give the tokenizer's name for "
                "it (options prefix, suffix, middle, end), or append=true to append it to the vocabulary"
            )
        table = SpecialTokens.append(facts.vocab_size, facts.owned_tokens, [*self.layout.names, *names])
        if len({table[name] for name in names}) < 4:
            raise FarspanError(f"fill_in_the_middle: two of {', '.join(names)} have one id; give other names")
        return table

    def longest(self, batch: SequenceBatch) -> tuple[np.ndarray, np.ndarray]:
        """Return upper bounds on source and target lengths over all draws, ``(n,)`` int64 each."""
        tokens, parts = batch.tokens.lengths.astype(np.int64), batch.document_starts.lengths.astype(np.int64)
        targets = self._plain_lengths(batch)
        if self.target_length is not None:
            targets = np.minimum(targets, self.target_length)
        return tokens + 2 + self.layout.around(parts), targets

    def mask(self, batch: SequenceBatch, key: bytes) -> MaskBatch:
        """Draw the cuts of n rows, by (key, options, sequence id, text) of the row."""
        ids, tokens = batch.ids(), batch.tokens.lengths
        words = np.hstack([id_keys(key + purpose, ids) for purpose in (b"", b"cuts", b"document")])
        plain, spm = ~_below(words[:, 0], self.rate), _below(words[:, 1], self.spm)
        if self.target_length is not None:
            plain &= self._plain_lengths(batch) <= self.target_length
        starts, sizes, flags = [], [], []
        for row in range(len(batch)):
            if plain[row] or not tokens[row]:
                edges = np.unique(np.append(batch.document_starts[row], tokens[row]))
            else:
                edges = np.array(self._middle(batch, row, words[row, 2:].tolist()))
            # A span over the whole row without a marker says that the row is plain, so such a middle is marked.
            marked = not plain[row] and (not spm[row] or edges[-1] - edges[0] == tokens[row])
            starts.append(edges[:-1])
            sizes.append(np.diff(edges))
            flags.append(np.full(len(edges) - 1, IN_TARGET | IN_SOURCE * marked))
        masks = MaskBatch(
            batch.sequence_ids,
            Ragged.from_rows(starts, np.int32),
            Ragged.from_rows(sizes, np.int32),
            Ragged.from_rows(flags, np.uint8),
            source_lengths=np.zeros(len(batch), np.int32),
            target_lengths=np.zeros(len(batch), np.int32),
        )
        source, target = (_lengths(pieces, len(batch)) for pieces in self._arrange(batch, masks))
        return replace(masks, source_lengths=source, target_lengths=target)

    def _middle(self, batch: SequenceBatch, row: int, words: list[int]) -> tuple[int, int]:
        """Draw the document to cut and its middle: first token in the row, and number of tokens, at least one."""
        if self._tools is None:
            raise FarspanError(
                "fill_in_the_middle: cuts are drawn among the characters of the text; give the tokenizer, "
                "objective.with_tools(Tools(tokenizer))"
            )
        tokens, documents = batch.tokens[row], batch.document_starts[row]
        document = int(np.searchsorted(documents, words[2] * len(tokens) >> 64, "right"))
        first, stop = int(documents[document - 1]), int(np.append(documents, len(tokens))[document])
        text, offsets = self._tools.tokenizer.decode_with_offsets(tokens[first:stop])
        cuts = sorted(word * (len(text) + 1) >> 64 for word in words[:2])
        begin, end = np.searchsorted(offsets, cuts).tolist()
        if begin == end:
            begin, end = (begin, end + 1) if end < stop - first else (begin - 1, end)
        if self.target_length is not None:
            begin = max(begin, end - (self.target_length - 1))
        return first + begin, first + end

    def render(
        self, batch: SequenceBatch, masks: MaskBatch, special: SpecialTokens, *, segment_ids: bool = False
    ) -> Examples:
        """Render the arrangement of prefix and suffix as the source, and the middle as the target."""
        literals = [special[name] if name else special[PAD] for name in self._literals]
        pool = np.concatenate([batch.tokens.compact().values.astype(np.int32), np.array(literals, np.int32)])
        pieces = self._arrange(batch, masks)
        lengths = [_lengths(each, len(batch)) for each in pieces]
        sides = [_ids(pool, each, size, special[PAD]) for each, size in zip(pieces, lengths, strict=True)]
        segments = _padded(np.repeat(pieces[0][:, 3], pieces[0][:, 2]), lengths[0], -1) if segment_ids else None
        return Examples(masks.sequence_ids, sides[0], lengths[0], sides[1], lengths[1], segment_ids=segments)

    def reconstruct(self, examples: Examples, masks: MaskBatch, special: SpecialTokens) -> Ragged:
        """Recover the text of every row, rows of int32, from the output of ``render``."""
        sentinels = [special[name] for name in (self.prefix, self.suffix, self.middle)]
        around = [special[name] for name in self._literals if name]  # never in text
        texts = []
        for row in range(len(examples)):
            source = examples.source_ids[row, : examples.source_lengths[row]]
            target = examples.target_ids[row, : examples.target_lengths[row]]
            places = np.flatnonzero(np.isin(source, sentinels))
            pieces = np.split(source, places)
            after = {int(piece[0]): piece[1:] for piece in pieces[1:]}
            others, target = (side[~np.isin(side, around)] for side in (pieces[0], target))
            if len(places):
                marked, start = masks.span_flags[row][0] & IN_SOURCE, int(masks.span_starts[row][0])
                # The prefix follows the first sentinel but in variant 2 of SPM, where it follows the last.
                prefix = after[sentinels[0 if marked or self.spm_variant == 1 else 2]]
                before = others[: start - len(prefix)]
                target = np.concatenate([before, prefix, target, after[sentinels[1]], others[len(before) :]])
            texts.append(target)
        return Ragged.from_rows(texts, np.int32)

    @property
    def _literals(self) -> tuple[str | None, ...]:
        """Tokens that stand around text, in the order of their places behind it: see ``_arrange``."""
        return self.layout.begin, self.prefix, self.suffix, self.middle, self.separator, self.end

    def _plain_lengths(self, batch: SequenceBatch) -> np.ndarray:
        """Target lengths of rows that are not cut, ``(n,)`` int64."""
        tokens, parts = batch.tokens.lengths, batch.document_starts.lengths
        return tokens + (self.separator is not None) * np.maximum(parts - 1, 0) + (tokens > 0)

    def _arrange(self, batch: SequenceBatch, masks: MaskBatch) -> tuple[np.ndarray, np.ndarray]:
        """List the pieces of sources and of targets, ``(pieces, 4)`` int64: row, start, size, document of its row.

        A start is one in the concatenated text of all rows; ``_literals`` follow that text.
        """
        documents, spans = batch.document_starts.compact(), masks.span_starts.compact()
        ends = np.cumsum(batch.tokens.lengths)
        firsts, every = ends - batch.tokens.lengths, np.arange(len(batch))
        begin, prefix, suffix, middle, separator, end = int(ends[-1] if len(ends) else 0) + np.arange(6)
        rows = np.repeat(every, documents.lengths)
        number = np.arange(len(rows)) - documents.offsets[rows]
        last = np.append(rows[1:] != rows[:-1], True)[: len(rows)]
        starts = firsts[rows] + documents.values
        stops = np.where(last, ends[rows], np.append(starts[1:], 0)[: len(rows)])
        # Of each row: tokens hidden, whether its first span has a marker, and the place of that span.
        hidden = np.diff(np.append(0, np.cumsum(masks.span_lengths.compact().values))[spans.offsets])
        some = np.minimum(spans.offsets[:-1], max(len(spans.values) - 1, 0))
        marked = (hidden > 0) & (np.append(masks.span_flags.compact().values, 0)[some] & IN_SOURCE != 0)
        cut = marked | (hidden < ends - firsts)
        low = firsts + np.append(spans.values, 0)[some]
        high = low + hidden
        chosen = cut[rows] & (starts <= low[rows]) & (low[rows] < stops)
        own = rows[chosen]
        between = np.full(len(rows), self.separator is not None)

        def pieces(*columns: tuple[Any, ...]) -> np.ndarray:
            """Sort pieces (row, place, start, size, document) by row and place, and drop the empty ones."""
            table = np.concatenate([np.stack(np.broadcast_arrays(*column), axis=1) for column in columns])
            table = table[table[:, 3] > 0]
            return table[np.lexsort(table[:, 1::-1].T)][:, [0, 2, 3, 4]]

        others, plain = cut[rows] & ~chosen, ~cut[rows]
        orders = _ORDERS["psm"], _ORDERS[f"spm{self.spm_variant}"]
        arranged = {
            "P": (prefix, 1),
            "S": (suffix, 1),
            "M": (middle, 1),
            "p": (starts[chosen], low[own] - starts[chosen]),
            "s": (high[own], stops[chosen] - high[own]),
        }
        source = pieces(
            (every, -1, begin, int(self.begin), 0),
            (rows, 2 * number, starts, (stops - starts) * others, number),
            (rows, 2 * number + 1, separator, between * others, number),
            *(
                (
                    own,
                    2 * len(rows) + np.where(marked[own], *(order.index(name) for order in orders)),
                    *piece,
                    number[chosen],
                )
                for name, piece in arranged.items()
            ),
        )
        target = pieces(
            (rows, 2 * number, starts, (stops - starts) * plain, number),
            (rows, 2 * number + 1, separator, between * plain * ~last, number),
            (every, 2 * len(rows), low, high * cut - low * cut, 0),
            (every, 2 * len(rows) + 1, end, hidden > 0, 0),
        )
        return source, target


def _below(words: np.ndarray, share: float) -> np.ndarray:
    """Return True for the first ``share`` of all 64-bit numbers, ``(n,)`` bool."""
    return words < np.uint64(int(share * 2**64)) if share < 1 else np.ones(len(words), bool)


def _lengths(pieces: np.ndarray, rows: int) -> np.ndarray:
    return np.bincount(pieces[:, 0], pieces[:, 2], minlength=rows).astype(np.int32)


def _ids(pool: np.ndarray, pieces: np.ndarray, lengths: np.ndarray, pad: int) -> np.ndarray:
    """Copy pieces of ``pool`` into rows, ``(n, width)`` int32."""
    text = Ragged(pool, np.array([0, len(pool)])).cut(np.zeros(len(pieces), np.int64), pieces[:, 1], pieces[:, 2])
    return _padded(text.values, lengths, pad)


def _padded(values: np.ndarray, lengths: np.ndarray, filler: int) -> np.ndarray:
    """Cut flat values into rows, ``(n, width)`` int32."""
    out = np.full((len(lengths), lengths.max(initial=0)), filler, np.int32)
    out[np.arange(out.shape[1]) < lengths[:, None]] = values
    return out
