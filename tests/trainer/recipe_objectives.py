"""The objectives that the files of packaged recipes name."""

import re
import tomllib

from trainer.recipe import load_recipe
from trainer.recipe_files import list_recipes

PRETRAINING = [name for name in list_recipes() if load_recipe(name).data.task is None]

_NAMED = re.compile(r"(\w+), preset (\w+(?: or \w+)*)")

_OPTION = re.compile(r'with option (\w+) = "(\w+)"')


def objectives_of(recipe: str) -> list[tuple[str, str, dict[str, str]]]:
    """Name, preset and options of each objective that a recipe, or the one it extends, names in its first comment."""
    text = list_recipes()[recipe].read_text("utf-8")
    values = tomllib.loads(text)
    if "data" in values and "objective" in values["data"]:
        objective = values["data"]["objective"]
        return [(objective["name"], objective["preset"], objective.get("options", {}))]
    comment = " ".join(line.removeprefix("#").strip() for line in text.partition("\n[")[0].splitlines())
    if "Objective: " not in comment:
        return objectives_of(values["extends"])
    sentence = re.split(r"\.(?: |$)", comment.partition("Objective: ")[2])[0]
    options = dict(_OPTION.findall(sentence))
    return [(name, preset, options) for name, presets in _NAMED.findall(sentence) for preset in presets.split(" or ")]
