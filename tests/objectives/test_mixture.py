"""Mixtures: seven denoisers in one mask set against a plain restatement, bad input, adjustment, budgets."""

from collections import Counter
from dataclasses import replace
from math import comb
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from corpora.errors import FarspanError
from corpora.keyed import make_key
from objectives.api.laws import LAWS, broken
from objectives.api.masks import IN_TARGET, MIXTURE_SCHEMA, MaskBatch
from objectives.api.protocol import CorpusFacts, equip, load_objective, mask_key
from objectives.api.trial import Trial
from objectives.mixture import Mixture
from tests.factories import OWNED, VOCAB, make_sequences
from tests.toy_tools import TOOLS

pytestmark = pytest.mark.usefixtures("farspan_lead")

KEY = make_key(0, "test")
LIKELY = 1e-4  # chance that a test of right code, run with another seed, would fail
UL2 = {"r3": (3, 0.15), "r8": (8, 0.15), "x3": (3, 0.5), "x8": (8, 0.5), "x64_15": (64, 0.15), "x64_50": (64, 0.5)}
# one of each kind of rendering with a target, one with ranks and scores, one of another package
MIXED: list[dict[str, Any]] = [
    {"objective": "span", "name": "spans", "mode": "[A]"},
    {"objective": "pegasus", "weight": 2, "mode": "[B]"},
    {"objective": "model_based", "preset": "bart_ls", "name": "hard"},
    {"objective": "t5_prefix", "name": "prefix", "mode": "[A]"},
    {"objective": "lead_in", "mode": "[C]"},
    {"objective": "fill_in_the_middle", "options": {"append": True}, "mode": "[D]"},
]


def facts(tokens: int, documents: int = 1, **changed) -> CorpusFacts:
    return replace(CorpusFacts(VOCAB, OWNED, tokens + 2 * documents + 3, tokens, documents, 3, 2), **changed)


def counts(tokens: int, mean: float, density: float) -> tuple[int, int]:
    """Hidden tokens and spans of T5's rule, in Python."""
    hidden = min(max(round(tokens * density), 1), tokens - 1)
    return hidden, max(round(hidden / mean), 1)


@pytest.mark.parametrize("preset", ["ul2", "ul2_listing"])
def test_seven_denoisers_over_100_000_rows_are_the_published_ones(preset):
    """Numbers of rows, hidden tokens, spans and pivots, and lengths of spans as of random compositions."""
    rows, tokens = 100_000, 96
    copies = make_sequences([tokens]).take(np.zeros(rows, np.int64))
    ids = np.random.default_rng(5).integers(0, 256, (rows, 16)).astype(np.uint8)
    masks = load_objective("mixture", preset).mask(replace(copies, sequence_ids=ids), KEY)
    drawn = Counter(masks.components.to_pylist())
    assert set(drawn) == {*UL2, "s"}
    assert stats.chisquare(list(drawn.values())).pvalue > LIKELY
    names = np.array(masks.components.to_pylist())
    for name, (mean, density) in UL2.items():
        own = masks.take(np.flatnonzero(names == name))
        hidden, spans = counts(tokens, mean, density)
        assert set(np.add.reduceat(own.span_lengths.values, own.span_lengths.offsets[:-1]).tolist()) == {hidden}
        assert set(own.span_starts.lengths.tolist()) == {min(spans, tokens - hidden)}
        assert set(own.source_lengths.tolist()) == {tokens - hidden + spans + 2}  # mode token, <eos>
        assert set(own.target_lengths.tolist()) == {hidden + spans + 1}
        if spans > 1:
            # the first part of a random composition of n into k: P(a) = C(n - a - 1, k - 2) / C(n - 1, k - 1)
            first = own.span_lengths.values[own.span_lengths.offsets[:-1]]
            sizes = np.arange(1, hidden - spans + 2)
            chances = np.array([_first(hidden, spans, int(size)) for size in sizes])
            frequency = np.bincount(first, minlength=sizes[-1] + 1)[1:]
            many = chances * len(own) > 5
            pooled = [*frequency[many], frequency[~many].sum()], [*chances[many], chances[~many].sum()]
            some = np.array(pooled[1]) > 0
            expected = np.array(pooled[1])[some] * len(own)
            assert stats.chisquare(np.array(pooled[0])[some], expected / expected.sum() * len(own)).pvalue > LIKELY
    pivots = masks.take(np.flatnonzero(names == "s")).span_starts.values
    if preset == "ul2":
        assert set(pivots.tolist()) == {tokens - tokens // 4}
    else:
        frequency = np.bincount(pivots, minlength=tokens)
        assert frequency[0] == 0
        assert stats.chisquare(frequency[1:]).pvalue > LIKELY


def _first(items: int, parts: int, size: int) -> float:
    """Chance that the first part of a random composition of ``items`` into ``parts`` has ``size``."""
    return comb(items - size - 1, parts - 2) / comb(items - 1, parts - 1) if items > size else 0.0


def test_weights_are_chances():
    masks = load_objective("mixture", "u_palm").mask(make_sequences([8] * 4000), KEY)
    drawn = Counter(masks.components.to_pylist())
    expected = {"r3": 1000, "x32": 500, "x3": 500, "s": 2000}
    assert stats.chisquare([drawn[name] for name in expected], list(expected.values())).pvalue > LIKELY


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_laws_hold_for_a_mixture_of_every_kind(law):
    def make(options):
        return equip(load_objective("mixture", options=options or {"components": MIXED}), TOOLS)

    batch = make_sequences([300, 280, 60, 5, 0, 90, 120, 200, 150, 77, 33, 41], 3, mean_sentence=7)
    trial = Trial(make, batch, facts(300, 3), accepted=("components", "target_length", "fit", "adjust"))
    assert broken(law, trial) == []
    assert set(trial.masks.components.to_pylist()) >= {"spans", "hard", "lead_in"}


def test_each_row_is_rendered_by_its_component_behind_its_mode_token():
    objective = equip(Mixture(MIXED), TOOLS)
    batch = make_sequences([120] * 60, 2)
    special = objective.validate(facts(120, 2))
    masks = objective.mask(batch, KEY)
    stored = MaskBatch.from_arrow(masks.to_arrow())
    assert masks.to_arrow().schema == MIXTURE_SCHEMA
    examples = objective.render(batch, stored, special)
    for row, name in enumerate(masks.components.to_pylist()):
        member = next(member for member in objective._members if member.name == name)
        alone = member.objective.render(batch.take([row]), stored.take([row]), special)
        source = alone.source_ids[0].tolist()
        source = source if member.mode is None else [special[member.mode], *source]
        assert examples.source_ids[row, : examples.source_lengths[row]].tolist() == source
        assert examples.target_ids[row, : examples.target_lengths[row]].tolist() == alone.target_ids[0].tolist()


def test_adjusted_stored_masks_are_those_drawn_with_the_same_adjustment():
    batch = make_sequences([200] * 30)
    few = equip(Mixture(MIXED, adjust={"hard": {"span_share": 0.05}}), TOOLS)
    all_of_them = equip(Mixture(MIXED), TOOLS)
    key = mask_key(3, few)
    assert key == mask_key(3, all_of_them)
    stored, wanted = all_of_them.mask(batch, key), few.mask(batch, key)
    assert few.select(batch, stored).to_arrow().equals(wanted.to_arrow())
    assert not stored.to_arrow().equals(wanted.to_arrow())


@pytest.mark.parametrize("fit", ["window", "reduce"])
def test_a_budget_keeps_targets_short_and_a_window_keeps_the_rate(fit):
    objective = Mixture(Mixture.presets["ul2"]["components"], 512, fit)
    batch = make_sequences([4096] * 150, 3)
    objective.validate(facts(4096, 3))
    masks = objective.mask(batch, KEY)
    assert masks.target_lengths.max() <= 512
    (rows,) = np.nonzero(np.array(masks.components.to_pylist()) == "x3")
    own = masks.take(rows)
    for row in range(len(own)):
        starts, sizes = own.span_starts[row], own.span_lengths[row]
        density = sizes.sum() / (starts[-1] + sizes[-1] - starts[0])
        assert density > 0.4 if fit == "window" else density < 0.15
    assert (own.span_flags.values & IN_TARGET).all()
    starts = own.span_starts.values[own.span_starts.offsets[:-1]]
    assert (np.ptp(starts) > 1000) == (fit == "window")


def test_rows_longer_than_the_decoder_are_refused_with_the_numbers():
    with pytest.raises(
        FarspanError, match=r"512, but component x3 \(span\) may need 10924 .* 2,731 sentinels .* 16384"
    ):
        load_objective("mixture", "ul2").validate(facts(16_384))


@pytest.mark.parametrize(
    ("components", "said"),
    [
        ([], "a list of tables"),
        ([{"name": "x"}], "with an objective"),
        ([{"objective": "spam"}], "component spam: no objective"),
        ([{"objective": "span", "wieght": 1}], "no key 'wieght' (did you mean 'weight'?)"),
        ([{"objective": "span", "weight": 0}], "weight is 0; give a number above 0"),
        ([{"objective": "span", "weight": -1.5}], "weight is -1.5"),
        ([{"objective": "span", "weight": float("nan")}], "weight is"),
        ([{"objective": "span", "options": {"densty": 0.1}}], "no option 'densty'"),
        ([{"objective": "span", "mode": "<pad>"}], "give a token of its own"),
        ([{"objective": "span", "mode": ""}], "give a token of its own"),
        ([{"objective": "span"}, {"objective": "span"}], "two components are called 'span'"),
        ([{"objective": "ul2"}], "a mixture cannot be a component"),
        ([{"objective": "mixture"}], "a mixture cannot be a component"),
    ],
    ids=str,
)
def test_bad_components_are_refused(components, said):
    with pytest.raises(FarspanError) as error:
        Mixture(components)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_bad_adjustments_kinds_and_rows_are_refused():
    with pytest.raises(FarspanError, match=r"adjust names 'hrad' \(did you mean 'hard'\?\)"):
        Mixture(MIXED, adjust={"hrad": {}})
    with pytest.raises(FarspanError, match="option density of component spans cannot be adjusted"):
        Mixture(MIXED, adjust={"spans": {"density": 0.1}})
    labels = Mixture([{"objective": "span"}, {"objective": "cross_document"}])
    with pytest.raises(FarspanError, match="span makes targets, cross_document only labels"):
        labels.validate(facts(50))
    objective = Mixture()
    batch = make_sequences([50])
    masks = objective.mask(batch, KEY)
    with pytest.raises(FarspanError, match="names component 'r4'; components: r3"):
        objective.render(batch, replace(masks, components=pa.array(["r4"])), objective.validate(facts(50)))
    with pytest.raises(FarspanError, match="name no component"):
        objective.render(batch, replace(masks, components=None), objective.validate(facts(50)))
    with pytest.raises(FarspanError, match="one position more in a row; build the corpus with --room-per-sequence 2"):
        objective.validate(facts(50, sequence_length=51, room_per_sequence=1))
