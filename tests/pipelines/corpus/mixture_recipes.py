"""Recipes of mixtures, written for tests."""

from __future__ import annotations


def write_recipe(folder, documents, text="", sequence_length=256, **sources):
    """A recipe of the given documents; ``sources`` are the lines of their tables."""
    tables = "".join(f"[sources.{name}]\n{lines}\n" for name, lines in sources.items())
    path = folder / "recipe.toml"
    documents = f'documents = "{documents}"\n' if documents else ""
    path.write_text(f"{documents}sequence_length = {sequence_length}\n{text}\n{tables}")
    return str(path)
