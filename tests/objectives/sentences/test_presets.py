"""Presets of principal_sentences build the objective; the fidelity tests compare their choices with published code."""

from __future__ import annotations

import pytest

from objectives.principal_sentences import PrincipalSentences
from objectives.sentences.presets import PRESETS


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_gives_each_of_its_options(preset):
    options = PrincipalSentences(**PRESETS[preset]).options
    assert {name: options[name] for name in PRESETS[preset]} == dict(PRESETS[preset])


def test_target_lengths_are_those_of_the_systems():
    lengths = {name: options["target_length"] for name, options in PRESETS.items()}
    assert lengths == {
        "pegasus": 256,
        "pegasus_paper": 256,
        "pegasus_x": 256,
        "pegasus_x_4096": 256,
        "longt5_paper": 910,
        "longt5_code": 910,
        "bart_ls": 1024,
    }
