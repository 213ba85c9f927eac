"""Recipes of mixtures, written for tests."""

from __future__ import annotations


def write_mixture_file(folder, documents, text="", sequence_length=256, **sources):
    """A mixture file of the given documents; ``sources`` are the lines of their tables."""
    tables = "".join(f"[sources.{name}]\n{lines}\n" for name, lines in sources.items())
    path = folder / "mixture.toml"
    documents = f'documents = "{documents}"\n' if documents else ""
    path.write_text(f"{documents}sequence_length = {sequence_length}\n{text}\n{tables}")
    return str(path)
