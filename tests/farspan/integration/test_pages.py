"""The Python of README.md and of three pages, run as it stands, in a folder with a little text."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[3]
WORDS = "the quick brown fox jumps over lazy dogs while seven wizards observe strange lights".split()


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text("utf-8"), re.DOTALL)


JOBS, *OTHERS = blocks("docs/python.md")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """The folder that the first block of the page makes."""
    place = tmp_path_factory.mktemp("python")
    (place / "text").mkdir()
    rng = np.random.default_rng(0)
    texts = [" ".join(" ".join(rng.choice(WORDS, 12)).capitalize() + "." for _ in range(10)) for _ in range(20)]
    (place / "text" / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(place)
        exec(JOBS, {})
    return place


def test_the_first_block_makes_what_it_says(folder: Path):
    made = {path.parent.name for path in folder.glob("*/manifest.json")}
    assert made == {"documents", "corpus", "masks"}


HOW_TO = [*blocks("docs/howto/transformers.md"), *blocks("docs/howto/decoders.md")]
EXPORTS = [blocks(f"docs/howto/{name}.md")[0] for name in ("megatron", "olmo_core")]  # others need the owners' packages


@pytest.mark.parametrize("block", [*OTHERS, *HOW_TO, *EXPORTS, *blocks("README.md")])
def test_a_block_runs(folder: Path, block: str, monkeypatch):
    if "Trainer" in block:
        pytest.importorskip("accelerate")
    monkeypatch.chdir(folder)
    names: dict = {}
    exec(block, names)
    if "Trainer" in block:
        assert int(names["dataset"]._epoch) == 1  # of 0 and 1
        assert names["trainer"].state.global_step > 0
