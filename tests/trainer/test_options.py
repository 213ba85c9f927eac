"""Options of training: flags and explanation are those of the dataclass."""

from __future__ import annotations

import argparse

from corpora.flags import add_flags
from corpora.settings import make
from trainer.options import Recipes, Training


def test_flags_of_training():
    parser = argparse.ArgumentParser()
    add_flags(parser, Training)
    typed = vars(parser.parse_args(["tiny", "--set", "run.steps=3", "--set", "data.corpus=c", "--estimate", "50"]))
    assert make(Training, typed) == Training(recipe="tiny", assignments=("run.steps=3", "data.corpus=c"), estimate=50)


def test_the_recipe_to_print_may_be_left_out():
    parser = argparse.ArgumentParser()
    add_flags(parser, Recipes)
    assert make(Recipes, vars(parser.parse_args([]))) == Recipes(recipe=None)
    assert make(Recipes, vars(parser.parse_args(["tiny"]))) == Recipes(recipe="tiny")
