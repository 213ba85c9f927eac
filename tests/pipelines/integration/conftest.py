"""Raw text and its artefacts, on local disk and in a store."""

import json
import random
import sys

import pytest

from pipelines.cli import main
from tests.artefacts import small_tokenizer
from tests.pipelines.integration.stores import WORDS, chain
from tests.vectors import copy


@pytest.fixture(scope="session")
def local(tmp_path_factory):
    """Raw text, a tokenizer, and what the jobs make of them on local disk."""
    folder = tmp_path_factory.mktemp("local")
    small_tokenizer().save(str(folder / "tokenizer"))
    draw = random.Random(0)
    (folder / "raw" / "more").mkdir(parents=True)
    for name in ("a.jsonl", "b.jsonl", "more/c.jsonl"):
        lines = [json.dumps({"text": " ".join(draw.choices(WORDS, k=draw.randint(1, 60)))}) for _ in range(120)]
        (folder / "raw" / name).write_text("\n".join(lines))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipelines.cli.leave", sys.exit)
        for command in chain(str(folder), str(folder / "tokenizer")):
            main(command)
    return str(folder)


@pytest.fixture
def raw(bucket, local):
    """The raw text in the bucket."""
    copy(f"{local}/raw", f"{bucket}/raw")
    return bucket
