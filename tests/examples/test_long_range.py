"""Examples for small models: patterns, facts in chains and far apart, a rule that comes last."""

import json
import re
from collections import Counter
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch

from examples import attention_patterns as figure
from examples import last_rule, long_range
from tests.examples.scripts import load_example
from trainer.model.context import make_context
from trainer.model.layers.heads import HeadsConfig
from trainer.model.layers.pooled import PooledAttention
from trainer.model.layers.sublayers import NormConfig
from trainer.model.patterns.tglobal import TGlobal


def test_a_row_asks_for_its_only_symbol_at_the_distance():
    rows = long_range.make_rows(50, 128, 93, torch.Generator().manual_seed(0))
    symbols = (rows.ids < long_range.SYMBOLS).nonzero()
    asked = rows.asked.nonzero()
    assert symbols[:, 0].tolist() == asked[:, 0].tolist() == list(range(50))
    assert torch.equal(asked[:, 1] - symbols[:, 1], torch.full((50,), 93))
    assert (rows.ids[rows.asked] == long_range.MASK).all()
    assert torch.equal(rows.labels[rows.asked], rows.ids[rows.ids < long_range.SYMBOLS])
    assert len(symbols[:, 1].unique()) > 15


@pytest.mark.parametrize("pattern", [*long_range.FAR, *long_range.NEAR])
def test_gradients_reach_the_symbol_just_where_the_pattern_does(pattern):
    stage = long_range.STAGES[0]
    model: Any = long_range.build(pattern, stage.window, 0)
    if pattern == "block + pooling":  # starts at zero, so that step 0 is block attention
        torch.nn.init.normal_(model.encoder.layers[-1].pooling.out.weight)
    rows = long_range.make_rows(4, stage.length, stage.distance, torch.Generator().manual_seed(1))
    task_globals = rows.asked if pattern == "window + task globals" else None
    vectors = []
    model.tokens.register_forward_hook(lambda module, inputs, output: vectors.append(output) or output.retain_grad())
    model.encode(rows.ids, global_positions=task_globals)[rows.asked][:, 0].sum().backward()
    reached = vectors[0].grad[rows.ids < long_range.SYMBOLS].abs().amax(-1) > 0
    assert reached.tolist() == [pattern in long_range.FAR] * 4


def accuracies(pattern, steps, seed=0):
    """Accuracy after every 40 steps, trained as far as it is asked for."""
    points = long_range.learn(pattern, [long_range.Stage(128, 32, steps)], every=40, held_out=256, seed=seed)
    return (point.accuracy for point in points)


@pytest.mark.slow
@pytest.mark.parametrize("pattern", ["full", "block + pooling"])
def test_patterns_that_reach_the_symbol_learn_it(pattern):
    """The step at which they do depends on the seed and on the last bits of sums; that they do does not."""
    assert any(accuracy > 0.9 for accuracy in accuracies(pattern, 800))


@pytest.mark.slow
def test_disjoint_blocks_cannot_learn_it():
    """256 held-out rows: chance is .125, with a standard deviation of .02."""
    assert all(accuracy < 0.25 for accuracy in accuracies("block", 200))


def test_the_lengths_above_the_curves_do_not_collide(tmp_path):
    """Their boxes in the drawn figure, as matplotlib measures them."""
    curves = {pattern: [long_range.Point(0, 0.0), long_range.Point(440, 1.0)] for pattern in ("full", "block")}
    with patch.object(long_range, "save") as save:
        long_range.draw(curves, str(tmp_path / "figure.svg"))
    plt, figure, _ = save.call_args.args
    figure.draw_without_rendering()
    for axis in figure.axes:
        boxes = sorted((text.get_window_extent() for text in axis.texts), key=lambda box: box.x0)
        assert len(boxes) == len(long_range.STAGES)
        assert all(one.x1 < next.x0 for one, next in pairwise(boxes))
    plt.close(figure)


far_facts = load_example("far_facts")


@pytest.mark.parametrize("block", [0, 16])
def test_answers_follow_the_facts(tmp_path, block):
    far_facts.main(tmp_path / "rows.jsonl", 96, block, 40)
    lines = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    tests = Counter(line["block"] for line in lines if line["split"] == "test")
    assert set(tests.values()) == {far_facts.TESTS}
    assert set(tests) == ({1, 2, 3, 5} if block else {0})
    for line in lines:
        words = line["documents"][0].split()
        asked, answers = (text[::2] + text[1::2] for text in (words[:4], line["references"][0].split()))
        assert asked[:2] == answers[:2] == far_facts.NUMBERS
        facts = {word[:2]: (word[2:], place) for place, word in enumerate(words) if word[2:] in far_facts.SECOND}
        for first, second in zip(asked[2:], answers[2:], strict=True):
            assert facts[first][0] == second
            assert not block or facts[first][1] // block == line["block"]


fact_chains = load_example("fact_chains")


def test_each_chain_has_names_of_its_own_and_a_thing():
    drawn = fact_chains.draw(fact_chains.Chains(count=4, hops=3, names=12), np.random.default_rng(0))
    names = [name for chain in drawn.names for name in chain]
    assert len(set(names)) == 12
    assert set(names) <= set(fact_chains.NAMES[:12])
    assert len(drawn.things) == 4
    assert set(drawn.things) <= set(fact_chains.THINGS[:8])


def test_questions_and_answers_name_the_same():
    drawn = fact_chains.Drawn([["Mary", "Paul"], ["John", "Karl"]], ["gold", "iron"])
    assert drawn.question([(0, 1)]) == "What does Paul have?"
    assert drawn.question([(1, 1), (0, 0)]) == "What do Karl and Mary have?"
    assert drawn.answer([(1, 1), (0, 0)]) == " Karl iron, Mary gold"


def test_a_training_question_asks_for_names_of_any_chains():
    """A name of each chain would give the last answers away."""
    chains = fact_chains.Chains(count=3, hops=2)
    asked = fact_chains.asked(chains, "train", 200, np.random.default_rng(0))
    assert all(len(set(names)) == 3 for names in asked)
    of_all = np.mean([len({chain for chain, _ in names}) == 3 for names in asked])
    assert of_all == pytest.approx(6 * 4 * 2 / (6 * 5 * 4), abs=0.1)


def test_other_questions_ask_for_each_name_once():
    asked = fact_chains.asked(fact_chains.Chains(count=3, hops=2), "test", 9, np.random.default_rng(0))
    assert sorted(names for (names,) in asked) == [(chain, hop) for chain in range(3) for hop in range(2)]


@pytest.mark.parametrize("places", ["together", "anywhere", "apart"])
def test_facts_stand_between_all_sentences_in_their_order(places):
    drawn = fact_chains.Drawn([["Mary", "Paul"], ["John", "Karl"]], ["gold", "iron"])
    sentences = [f"Sentence {number}." for number in range(6)]
    for seed in range(20):
        text = fact_chains.with_facts(sentences, drawn, places, np.random.default_rng(seed))
        assert re.findall(r"Sentence \d", text) == [f"Sentence {number}" for number in range(6)]
        assert ("Mary has gold. Paul follows Mary." in text) >= (places == "together")
        rest = re.sub(r"Sentence \d\. ?", "", text).strip()
        assert rest.startswith("Facts: ")
        found = sorted(re.findall(r"\w+ \w+ \w+\.", rest))
        assert found == ["John has iron.", "Karl follows John.", "Mary has gold.", "Paul follows Mary."]


def test_more_names_or_things_than_there_are():
    with pytest.raises(ValueError, match="4 chains of 3 hops need 12 names of 8; there are"):
        fact_chains.Chains(count=4, hops=3)
    with pytest.raises(ValueError, match="things is 40; there are"):
        fact_chains.Chains(things=40)


HEADS, WIDTH = HeadsConfig(count=1), 4


def reached(queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """``(Q, K)`` bool: the keys ``(1, K, ...)`` that have a gradient of each query in ``(1, Q, ...)``."""
    totals = queries[0].flatten(1).square().sum(1)
    rows = [torch.autograd.grad(total, keys, retain_graph=True)[0][0].flatten(1).abs().amax(1) > 0 for total in totals]
    return torch.stack(rows)


def by_gradients(panel: figure.Panel) -> torch.Tensor:
    """The keys that ``panel`` attends to, by the values that reach each query."""
    torch.manual_seed(0)
    pattern, places = panel.pattern, panel.pattern.extra_tokens + figure.LENGTH
    chosen = torch.isin(torch.arange(figure.LENGTH), torch.tensor(panel.chosen))[None] if panel.chosen else None
    context = make_context(global_positions=chosen)
    x = torch.randn(1, places, WIDTH, requires_grad=True)
    if panel.chosen:  # the layer, as global positions have projections of their own
        return reached(pattern.layer(WIDTH, HEADS, NormConfig(), 0.0)(x, context), x)
    sides = figure.LENGTH // pattern.block if isinstance(pattern, TGlobal) else 0
    q, k = (torch.randn(1, count, 1, WIDTH) for count in (places, places + sides))
    v = torch.randn(1, places + sides, 1, WIDTH, requires_grad=True)
    seen = reached(pattern.attend(q, k, v, context), v)
    if panel.pooling is None:
        return seen
    layer, windows = PooledAttention(WIDTH, HEADS, panel.pooling, 0.0), []
    layer.kv.register_forward_hook(lambda module, inputs, output: windows.append(output))
    return torch.cat([seen, reached(layer(x, context), windows[0])], 1)


@pytest.mark.parametrize("panel", figure.PANELS, ids=lambda panel: panel.title.replace("\n", " "))
def test_a_panel_shows_what_the_layer_attends_to(panel):
    assert torch.equal(figure.kinds(panel) != figure.NOTHING, by_gradients(panel))


def test_the_figure_has_a_panel_for_every_pattern():
    from trainer.model.patterns import AnyPattern
    from trainer.model.patterns.layered import Layered  # chooses the others by layer

    drawn = {type(panel.pattern) for panel in figure.PANELS}
    assert drawn == set(AnyPattern.__args__) - {Layered}, "add a panel to PANELS in examples/attention_patterns.py"


# An encoder-decoder made from a trained decoder learns a rule that comes last sooner than a new one.
def test_targets_are_the_digits_by_the_rule_in_order():
    rows = last_rule.make_rows(50, torch.Generator().manual_seed(0))
    for source, inputs, labels in zip(*(part.tolist() for part in rows), strict=True):
        begin, *digits, rule = source
        results = sorted((digit - last_rule.DIGITS + rule - last_rule.RULES) % 10 for digit in digits)
        assert inputs == [begin, *(result + last_rule.DIGITS for result in results)]
        assert labels == [*inputs[1:], last_rule.END]
        assert len(set(digits)) == last_rule.COUNT


@pytest.mark.slow
def test_after_a_short_training_the_adapted_model_beats_scratch():
    adapted = last_rule.adapt(last_rule.train_decoder(300, seed=0))
    errors = {arm: last_rule.learn(last_rule.make_arm(arm, adapted, 0), (100,), 0)[0] for arm in last_rule.ARMS}
    assert errors["adapted"] < 0.85 * errors["scratch"]
