"""An encoder-decoder made from a trained decoder learns a rule that comes last sooner than a new one."""

import pytest
import torch

from examples import last_rule


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
