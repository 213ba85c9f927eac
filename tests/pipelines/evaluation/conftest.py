"""Pairs and predictions of two systems."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from corpora.schemas.pairs import open_pairs
from tests.artefacts import make_documents, make_pairs, make_predictions


@dataclass(frozen=True)
class Made:
    """Folders: pairs, the last reference as prediction, and half of the first."""

    root: Path
    pairs: str
    good: str
    poor: str

    @property
    def ids(self) -> list[str]:
        pairs = open_pairs(self.pairs)
        return pairs.table(pairs.rows_of("validation")).column("pair_id").to_pylist()

    @property
    def references(self) -> list[list[str]]:
        pairs = open_pairs(self.pairs)
        return pairs.table(pairs.rows_of("validation")).column("references").to_pylist()


@pytest.fixture(scope="session")
def made(tmp_path_factory) -> Made:
    root = tmp_path_factory.mktemp("evaluation")
    documents = make_documents(str(root / "documents"))
    attributes: list[dict[str, Any]] = [{"hard": True}, {"hard": False}, {}, {"hard": True}]
    pairs = make_pairs(
        str(root / "pairs"), documents, 120, options=3, attributes=[{**own, "subset": "quality"} for own in attributes]
    )
    made = Made(root, pairs, str(root / "good"), str(root / "poor"))
    make_predictions(made.good, pairs)
    make_predictions(made.poor, pairs, texts=[own[0][: len(own[0]) // 2] for own in made.references])
    return made
