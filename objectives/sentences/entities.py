"""Named entity recognition with spaCy."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from corpora.errors import FarspanError, from_extra

# Characters. Memory grows with the text, and models find fewer names towards the end of a long text.
LONGEST_PIECE = 50_000
# Characters without white space between them: spaCy's English tokenizer takes quadratic time for a run of quotes.
LONGEST_RUN = 1_000
PIECES_AT_ONCE = 16  # more is no faster and takes more memory

_unbroken = re.compile(rf"\S{{{LONGEST_RUN}}}")
_one_thread = threading.Lock()  # a pipeline's vocabulary is not thread-safe


@dataclass(frozen=True)
class SpacyRecognizer:
    """An ``EntityRecognizer`` (objectives/api/protocol.py) over an installed spaCy model, loaded once per process.

    Texts go through ``nlp.pipe``, with only the components that find entities. A text of more than ``LONGEST_PIECE``
    characters, or of ``LONGEST_RUN`` without white space, is processed in pieces. The entities of a text do not depend
    on the other texts, and words that texts add to the vocabulary are dropped after each call.

    Attributes:
        model: name of an installed model, or its folder.
        labels: kinds of entities to find, e.g. ``("PERSON", "ORG", "GPE")``; None for all, including dates and numbers.
    """

    model: str = "en_core_web_sm"
    labels: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        pipeline = _pipeline(self.model)
        known = {label for kinds in pipeline.pipe_labels.values() for label in kinds}
        if unknown := sorted(set(self.labels or ()) - known):
            raise FarspanError(
                f"spaCy model {self.model!r} finds no entities of kind {', '.join(unknown)}; "
                f"its kinds: {', '.join(sorted(known))}"
            )

    @property
    def name(self) -> str:
        """Model, model version and spaCy version."""
        import spacy

        meta = _pipeline(self.model).meta
        return f"{meta['lang']}_{meta['name']} {meta['version']}, spaCy {spacy.__version__}"

    def find(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Find the entities of each text: first character and end, ``(k, 2)`` int64, ascending and disjoint."""
        pieces = ((piece, (number, start)) for number, text in enumerate(texts) for start, piece in _pieces(text))
        result: list[list[tuple[int, int]]] = [[] for _ in texts]
        pipeline = _pipeline(self.model)
        with _one_thread, pipeline.memory_zone():
            for document, (number, start) in pipeline.pipe(pieces, as_tuples=True, batch_size=PIECES_AT_ONCE):
                result[number] += [
                    (start + entity.start_char, start + entity.end_char)
                    for entity in document.ents
                    if self.labels is None or entity.label_ in self.labels
                ]
        return [np.array(spans, np.int64).reshape(-1, 2) for spans in result]


@lru_cache(maxsize=4)
def _pipeline(model: str) -> Any:
    """Load a model with only the components that write ``doc.ents`` and the layers they depend on."""
    with from_extra("spacy", "finding the names in a text"):
        import spacy  # takes seconds to import, and few objectives need it

    try:
        pipeline = spacy.load(model)
    except (OSError, ValueError) as error:
        installed = ", ".join(sorted(spacy.util.get_installed_models())) or "none"
        is_folder = os.path.sep in model or os.path.exists(model)
        cure = (
            "give the folder of a saved pipeline" if is_folder else f"install it by `python -m spacy download {model}`"
        )
        raise FarspanError(
            f"spaCy cannot load the model {model!r}; {cure}, or name another one (installed: {installed}). "
            f"spaCy says: {error}"
        ) from error
    names = list(pipeline.pipe_names)
    finders = {name for name in names if "doc.ents" in pipeline.get_pipe_meta(name).assigns}
    if not finders:
        raise FarspanError(
            f"spaCy model {model!r} finds no entities: its components are {', '.join(names) or 'none'}; name a model "
            "with a component ner, e.g. en_core_web_sm"
        )
    for name in names:
        listening = set(getattr(pipeline.get_pipe(name), "listening_components", ()))
        if name not in finders and not listening & finders:
            pipeline.remove_pipe(name)
    return pipeline


def _pieces(text: str) -> Iterator[tuple[int, str]]:
    """Yield (first character, piece) of a text, which is cut at a line end or a space, or inside a long run."""
    start = 0
    for end in [*(run.end() for run in _unbroken.finditer(text)), len(text)]:
        while start < end:
            stop = min(start + LONGEST_PIECE, end)
            if stop < end:
                line, space = (text.rfind(edge, start + LONGEST_PIECE // 2, stop) for edge in "\n ")
                stop = line if line >= 0 else space if space >= 0 else stop
            yield start, text[start:stop]
            start = stop
