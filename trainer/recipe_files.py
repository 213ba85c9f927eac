"""Recipe files: packaged recipes, lookup by name or path, and tables merged over those of extended recipes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from corpora.errors import FarspanError, nearest
from corpora.storage.files import read_user_toml
from trainer.run_config import LENGTHS

RECIPES = Path(__file__).parent / "recipes"


def list_recipes() -> dict[str, Path]:
    """Return the files of the packaged recipes by name, in the order of the names."""
    return {path.stem: path for path in sorted(RECIPES.glob("*/*.toml"), key=lambda path: path.stem)}


def summaries() -> dict[str, str]:
    """Return the first sentence of each packaged recipe's comment, by name."""
    summaries = {}
    for path in list_recipes().values():
        comment = path.read_text("utf-8").partition("\n#\n")[0].partition("\n\n")[0]
        text = " ".join(line.removeprefix("#").strip() for line in comment.splitlines())
        summaries[path.stem] = re.split(r": |(?<!al)\. |; |\.$", text)[0]
    return summaries


def read_tables(
    name: str, folder: Path = Path(), above: tuple[str, ...] = ()
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Read recipe ``name`` and the recipes that it extends.

    Returns:
        The merged tables, and the names of all files read, the extending one first.
    """
    path = find_recipe(name, folder)
    if str(path) in above:
        chain = " extends ".join(Path(file).name for file in (*above[above.index(str(path)) :], str(path)))
        raise FarspanError(f"{chain}: recipes extend each other in a circle; remove one `extends`")
    values = read_user_toml(path)
    base = values.pop("extends", None)
    if base is None:
        return values, (path.name,)
    if not isinstance(base, str):
        raise FarspanError(f"{path.name}: extends is {base!r}; give one name or path, in quotes, above all sections")
    below, read = read_tables(base, path.parent, (*above, str(path)))
    return merge(below, values), (path.name, *read)


def find_recipe(name: str, folder: Path = Path()) -> Path:
    """Find the file of a recipe given by packaged name or by path."""
    packaged = list_recipes()
    path = packaged.get(name, folder / name)
    if not path.is_file():
        raise FarspanError(
            f"no recipe {name!r}{nearest(name, packaged)}; give the path of a TOML file or one of: "
            f"{', '.join(sorted(packaged))}"
        )
    return path.resolve()


def merge(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Merge the tables of a recipe, ``above``, over those of the one that it extends, ``below``."""
    merged = dict(below)
    for key, value in above.items():
        old = below.get(key)
        if isinstance(old, dict) and isinstance(value, dict) and not _another_kind(old, value):
            value = merge(without_other_length(old, value) if key == "run" else old, value)
        merged[key] = value
    return merged


def without_other_length(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Remove the length of the run section ``old`` (``steps``, ``epochs`` or ``tokens``) if ``new`` gives another."""
    lengths = set(LENGTHS)
    return {key: value for key, value in old.items() if key not in lengths or not lengths & new.keys() - {key}}


def _another_kind(old: dict[str, Any], new: dict[str, Any]) -> bool:
    """True if ``new`` names another pattern or scheme than ``old``, so that the keys of ``old`` do not apply."""
    return any(tag in new and new[tag] != old.get(tag) for tag in ("pattern", "scheme"))
