"""Principal sentences: hides the sentences most similar to the rest of their text (gap sentences).

Source: Zhang et al. 2020 (PEGASUS), section 3.1 (gap sentences); also LongT5 (Guo et al. 2022, section 3.2), PEGASUS-X
(Phang et al. 2022) and a baseline of BART-LS (Xiong et al. 2022, section 2.3). Presets of systems with published code
choose the same sentences by the same scores; docs/objectives.md lists every difference, with the share of choices that
agree.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from corpora.errors import FarspanError
from corpora.schemas.sequences import SequenceBatch
from corpora.storage.ragged import Ragged
from objectives.api.masks import MaskBatch
from objectives.api.options import (
    check,
    check_chances,
    check_choice,
    check_layout,
    check_whole,
    equipped,
    is_number,
    normalize,
)
from objectives.api.protocol import Tools
from objectives.api.special_tokens import DOCUMENT_SEPARATOR, MASK, SENTENCE_MASK, UNKNOWN
from objectives.rendering.marked import MarkedSpans
from objectives.rendering.render import rendered_lengths
from objectives.rouge.sentence_scores import COUNTS, PRECISIONS, TIES, select_greedily, sentence_scores, window_scores
from objectives.rouge.words import WORDS, Words, split_words, token_words
from objectives.sentences.selection import (
    Choice,
    Draws,
    Sentences,
    choose_best,
    choose_windows,
    decode_texts,
    draw,
    find_sentences,
    make_chosen_spans,
    most_tokens,
    order_in_rows,
    pick_counts,
    token_texts,
    uniform,
    with_noise,
)
from objectives.sentences.spans import RANDOM, TREATMENTS, choose_treatments, longest_texts, stand_ins, within_target

# pegasus/params/pegasus_params.py and pegasus/ops/*.cc; input 512, target 256; one document, hence no separator.
_PEGASUS = {
    "strategy": "dynamic",
    "ratio": [0.33 * 0.45, 0.45],
    "noise": 0.2,
    "stopwords": "english",
    "precision": "float32",
    "ties": "later",
    "treatments": [0.9, 0.0, 0.1, 0.0],
    "separator": None,
    "target_length": 256,
}
# longt5/preprocessors.py: input 4,096, target 910. The path of the stopwords is blank in the published file, whose
# comment names the list: PEGASUS's. PEGASUS's mask is id 2, and over T5's unshifted ids that is <unk>.
_LONGT5 = {**_PEGASUS, "ratio": [0.33 * 0.2, 0.2], "target_length": 910, "mask_token": UNKNOWN}

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "pegasus": _PEGASUS,
    # Section 6.2: a fixed ratio, no noise, and 20 % of the chosen sentences stay.
    "pegasus_paper": {
        **_PEGASUS,
        "strategy": "ind",
        "ratio": 0.45,
        "noise": 0.0,
        "treatments": [0.8, 0.0, 0.2, 0.0],
    },
    # The paper gives the ratios, for input 512 and then 4,096, both with target 256; the rest is PEGASUS's code.
    "pegasus_x": {**_PEGASUS, "ratio": 0.45},
    "pegasus_x_4096": {**_PEGASUS, "ratio": 0.05625},
    # The paper says Ind-Uniq, the code counts as Orig; the rest is the code's.
    "longt5_paper": {**_LONGT5, "counts": "uniq"},
    "longt5_code": _LONGT5,
    # fairseq/data/pegasus_dataset.py, with the options of fb_sweep/long_pretrain/sweep_pegasus.py.
    "bart_ls": {
        "ratio": 1 / 16,
        "rounding": "up",
        "counts": "uniq",
        "words": "tokens",
        "scope": "sequence",
        "begin": True,
        "separator": None,
        "target_length": 1024,
        "when_full": "stop",
    },
}


# google-research/pegasus (Apache-2.0), pegasus/ops/testdata/english_stopwords, which pegasus/params/pegasus_params.py
# names: 127 words in this order, NLTK's list of 2015. LongT5 (longt5/preprocessors.py) names the same list in a
# comment. No package of the index has exactly these words.
_WORDS = """
i me my myself we our ours ourselves you your yours yourself yourselves he him his himself she her hers
herself it its itself they them their theirs themselves what which who whom this that these those am is are
was were be been being have has had having do does did doing a an the and but if or because as until while of
at by for with about against between into through during before after above below to from up down in out on
off over under again further then once here there when where why how all any both each few more most other
some such no nor not only own same so than too very s t can will just don should now
"""

ENGLISH_STOPWORDS = tuple(_WORDS.split())


@dataclass(frozen=True)
class PrincipalSentences(MarkedSpans):
    """Objective ``principal_sentences``.

    Attributes:
        strategy: selection of a text's sentences: ``random``; ``lead``, the first; ``ind``, those with the best
            individual ROUGE F1 against the rest of the text; ``seq``, greedily, each so that the chosen ones together
            score best against the rest; ``continuous``, the stretch that scores best against the rest; ``dynamic``,
            as ``ind`` with noise in the scores; ``hybrid``, one of random, lead and ind for each text, with equal
            probabilities.
        ratio: share of a text's sentences to choose, at least one sentence; with [low, high], each text draws its own.
        rounding: rounding of that number of sentences, ``down`` or ``up``.
        noise: noise of ``dynamic``: a score is multiplied by 1 + noise * x, x normal with standard deviation ``noise``.
        counts: weight of an n-gram: its occurrences (``orig``), 1 (``uniq``), or log(1 + occurrences) (``log``).
        ngram: words per n-gram.
        words: ``rouge`` (runs of ASCII letters and digits), ``unicode`` (words of any script), or ``tokens``.
        stopwords: words to ignore: ``none``, ``english`` (PEGASUS's 127), or a list.
        precision: precision of scores and numbers of sentences, ``float64`` or ``float32``.
        ties: order of equal scores: the ``earlier`` or the ``later`` sentence is chosen first.
        treatments: probabilities that a chosen sentence is hidden behind the mask token, replaced, left unchanged, or
            removed without a marker; the target always has it. The replacement is a random sentence of the same text,
            possibly itself, as published, repeated or cut to the same number of tokens.
        scope: a text is a ``document``'s part in the row, or the whole row (``sequence``).
        mask_token: ``<sent-mask>``, ``<mask>`` or ``<unk>`` (LongT5), one for every hidden sentence.
        begin: True if source and target start with ``<bos>``; both always end with ``<eos>``.
        separator: token between two documents, ``<doc-sep>`` or ``<eos>``, or None.
        target_length: decoder positions, including begin and end; None for as many as needed. Sentences enter the
            target in their order of choice; among the texts of a row, the highest score is next. If not even the first
            sentence fits, it is cut. Sentences that do not enter stay in the source.
        when_full: a sentence that does not fit is skipped (``skip``), or ends the selection (``stop``).
        global_attention: ``none``, ``bos``, ``separators`` or ``masked``.
    """

    strategy: str = "ind"
    ratio: float | Sequence[float] = 0.3
    rounding: str = "down"
    noise: float = 0.0
    counts: str = "orig"
    ngram: int = 1
    words: str = "rouge"
    stopwords: str | Sequence[str] = "none"
    precision: str = "float64"
    ties: str = "earlier"
    treatments: Sequence[float] = (1.0, 0.0, 0.0, 0.0)
    scope: str = "document"
    mask_token: str = SENTENCE_MASK
    begin: bool = False
    separator: str | None = DOCUMENT_SEPARATOR
    target_length: int | None = None
    when_full: str = "skip"
    global_attention: str = "none"
    _tools: Tools | None = field(default=None, init=False, repr=False, compare=False)

    name: ClassVar[str] = "principal_sentences"
    adjustable: ClassVar[tuple[str, ...]] = ("target_length",)
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = PRESETS

    def __post_init__(self) -> None:
        check_choice(self, "strategy", "random", "lead", "ind", "seq", "continuous", "hybrid", "dynamic")
        value: Any = self.ratio
        bounds = list(value) if isinstance(value, list | tuple) else [value]
        valid = len(bounds) in (1, 2) and all(is_number(bound) for bound in bounds) and bounds == sorted(bounds)
        check(self, "ratio", valid and bounds[0] > 0 and bounds[-1] <= 1, "a number above 0 up to 1, or [low, high]")
        check_choice(self, "rounding", "down", "up")
        check(self, "noise", is_number(self.noise) and self.noise >= 0, "a number from 0 up")
        check(self, "noise", self.noise == 0 or self.strategy == "dynamic", "0, or strategy=dynamic")
        check_choice(self, "counts", *COUNTS)
        check_whole(self, "ngram", least=1)
        check_choice(self, "words", *WORDS, "tokens")
        value = self.stopwords
        listed = isinstance(value, list | tuple) and all(isinstance(word, str) for word in value)
        check(self, "stopwords", listed or value in ("none", "english"), "none, english, or a list of words")
        check(self, "stopwords", value == "none" or self.words != "tokens", "none, or words other than tokens")
        check_choice(self, "precision", *PRECISIONS)
        check_choice(self, "ties", *TIES)
        chances = check_chances(self, "treatments", "mask", "random", "intact", "remove")
        check_choice(self, "scope", "document", "sequence")
        check_choice(self, "mask_token", SENTENCE_MASK, MASK, UNKNOWN)
        check_whole(self, "target_length", least=self.layout.ends + 1, null=True)
        check_choice(self, "when_full", "skip", "stop")
        check_layout(self)
        unclear = self.global_attention == "masked" and self.mask_token == UNKNOWN
        check(
            self, "global_attention", not unclear, f"none, or mask_token={SENTENCE_MASK}: text may hold {UNKNOWN} too"
        )
        ratio = float(bounds[0]) if bounds[0] == bounds[-1] else tuple(map(float, bounds))
        stopwords = tuple(sorted(set(value))) if listed else value
        normalize(self, ratio=ratio, noise=float(self.noise), treatments=chances, stopwords=stopwords)

    def with_tools(self, tools: Tools) -> PrincipalSentences:
        """Return a copy that can decode rows with ``tools.tokenizer``."""
        return equipped(self, tools)

    @property
    def marker(self) -> str:
        return self.mask_token

    def longest(self, batch: SequenceBatch) -> tuple[np.ndarray, np.ndarray]:
        """Return upper bounds on source and target lengths over all draws, ``(n,)`` int64 each."""

        def most() -> np.ndarray:
            sentences = find_sentences(batch, self.scope)
            ratio: Any = self.ratio if isinstance(self.ratio, float) else self.ratio[-1]
            return most_tokens(sentences, pick_counts(sentences.sizes, ratio, self.rounding, self.precision))

        return longest_texts(batch, self.layout, self.target_length, most)

    def mask(self, batch: SequenceBatch, key: bytes) -> MaskBatch:
        """Choose the sentences of n rows, by (key, options, sequence id, text) of the row."""
        sentences = find_sentences(batch, self.scope)
        draws = draw(key, batch, sentences)
        choice = order_in_rows(self._choose(batch, sentences, draws), sentences, self.ties)
        masks, numbers = make_chosen_spans(batch, sentences, choice)
        treatments = choose_treatments(draws.sentences[numbers], self.treatments)
        masks = replace(masks, span_flags=Ragged(TREATMENTS[treatments], masks.span_flags.offsets))
        if self.treatments[RANDOM] > 0:
            replaced = numbers[treatments == RANDOM]
            masks = replace(masks, replacements=stand_ins(batch, sentences, replaced, draws.sentences[replaced]))
        return self.select(batch, masks)

    def select(self, batch: SequenceBatch, masks: MaskBatch) -> MaskBatch:
        """Select the stored sentences that fit a target of ``target_length``.

        The result equals ``mask`` with the same key if the stored masks were made without a target length, or with a
        longer one and ``when_full=stop``. With ``skip``, a sentence that did not fit is not stored, although it might
        fit the shorter target after a longer sentence was skipped. A longer target than the stored one adds nothing.
        """
        if self.target_length is not None:
            masks = within_target(masks, self.target_length - self.layout.ends, self.when_full)
        source, target = rendered_lengths(batch, masks, self.layout, sentinels=False)
        return replace(masks, source_lengths=source, target_lengths=target)

    def _choose(self, batch: SequenceBatch, sentences: Sentences, draws: Draws) -> Choice:
        """Choose the sentences of every text, best first."""
        ratios: Any = self.ratio
        if not isinstance(self.ratio, float):
            low, high = self.ratio
            ratios = low + (high - low) * uniform(draws.texts[:, 0])
        picks = pick_counts(sentences.sizes, ratios, self.rounding, self.precision)
        ngrams: dict[str, Any] = {"n": self.ngram, "counts": self.counts, "precision": self.precision}
        if self.strategy == "seq":
            words = self._words(batch, sentences)
            order, gains = select_greedily(words, picks, ties=self.ties, **ngrams)
            return Choice(Ragged(order.values + np.repeat(sentences.texts[:-1], picks), order.offsets), gains)
        if self.strategy == "continuous":
            windows = window_scores(self._words(batch, sentences), picks, **ngrams)
            return choose_windows(windows, sentences, picks, self.ties)
        return choose_best(self._scores(batch, sentences, draws, ngrams), sentences, picks, self.ties)

    def _scores(
        self, batch: SequenceBatch, sentences: Sentences, draws: Draws, ngrams: Mapping[str, Any]
    ) -> np.ndarray:
        """Score the sentences for the strategies that score each one individually, ``(s,)`` float."""
        if self.strategy in ("ind", "dynamic"):
            scores = sentence_scores(self._words(batch, sentences), **ngrams).values
            return with_noise(scores, draws.sentences, self.noise, self.precision) if self.noise else scores
        texts = sentences.text_of_sentence
        chance = uniform(draws.sentences[:, 0])
        place = sentences.texts[texts] - np.arange(len(texts)).astype(np.float64)  # 0, -1, -2, ...
        if self.strategy != "hybrid":
            return chance if self.strategy == "random" else place
        scores = sentence_scores(self._words(batch, sentences), **ngrams).values
        which = (draws.texts[:, 1] % np.uint64(3)).astype(np.int64)
        return np.choose(which[texts], [chance, place, scores])

    def _words(self, batch: SequenceBatch, sentences: Sentences) -> Words:
        """Split every text into words, sentence by sentence."""
        if self.words == "tokens":
            return token_words(*token_texts(batch, sentences))
        if self._tools is None:
            raise FarspanError(
                f"{self.name}: words={self.words} needs text, and so a tokenizer; pass one by "
                "equip(objective, Tools(tokenizer)), or give words=tokens"
            )
        texts, starts = decode_texts(batch, sentences, self._tools.tokenizer)
        lists: Mapping[Any, Collection[str]] = {"none": (), "english": ENGLISH_STOPWORDS}
        listed = lists[self.stopwords] if isinstance(self.stopwords, str) else self.stopwords
        return split_words(texts, starts, stopwords=listed, words=self.words)
