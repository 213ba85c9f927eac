"""Questions at the beginning of a row about facts in one of its blocks, as JSON lines for ``farspan pairs``.

A fact is a word of two syllables. The row begins with four numbered first syllables, the target has the second ones:

    one ba two ke after again balo all kemi also rosa and ...     ->     one lo two mi

A decoder of one layer reads either a question or a fact, so the encoder has to bring each question and its fact
together: the attention pattern decides from how far. All facts lie in one block, other words everywhere. Four facts are
not asked, so that a guess among the facts of a row is right for a quarter of the questions.

A line is ``{"id", "documents", "references", "split", "block"}``; ``block`` is that of the asked facts, from 0.

    python examples/far_facts.py far.jsonl --words 128 --block 16 --rows 6400
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

NUMBERS = ["one", "two"]
FIRST = ["ba", "ke", "di", "ro", "fu", "ga", "pe", "zi"]
SECOND = ["lo", "mi", "nu", "sa", "te", "vi", "xo", "ju"]
FILLERS = """
after again air all also and are ask away back been big boy but by call can come could day did down each eat end even
eye far few find first food for found from get give good great had hand hard has have head hear help her here high him
his home house how its just keep kind know land
""".split()  # noqa: SIM905
FACTS = 6
TESTS = 200  # rows of each block in the test split


def write_row(words: int, start: int, stop: int, rng: np.random.Generator) -> tuple[str, str]:
    """Draw the text and the target of a row of ``words`` words with its facts in ``[start, stop)``.

    The text begins with a space, so that each word is one token of a byte-level tokenizer wherever it stands.
    """
    row = rng.choice(FILLERS, words)
    first, second = rng.permutation(FIRST)[:FACTS], rng.choice(SECOND, FACTS)
    row[: 2 * len(NUMBERS)] = np.stack([NUMBERS, first[: len(NUMBERS)]], axis=1).ravel()
    row[start + rng.permutation(stop - start)[:FACTS]] = np.strings.add(first, second)
    return " " + " ".join(row), " ".join(np.stack([NUMBERS, second[: len(NUMBERS)]], axis=1).ravel())


def main(path: Path, words: int, block: int, rows: int) -> None:
    """Write rows with facts in any block but the first for training, and in the second, third, middle and last to test.

    A row without blocks has its facts anywhere after the questions.
    """
    blocks = words // block if block else 0
    tests = (1, 2, blocks // 2, blocks - 1) if block else (0,)
    with path.open("w") as file:
        for split, count in (("train", rows), ("test", TESTS * len(tests))):
            rng = np.random.default_rng([words, count])
            for number in range(count):
                place = tests[number % len(tests)]
                if block and split == "train":
                    place = int(rng.integers(1, blocks))
                start, stop = (block * place, block * (place + 1)) if block else (2 * len(NUMBERS), words)
                text, target = write_row(words, start, stop, rng)
                line = {"id": f"{split}-{number}", "documents": [text], "references": [target], "split": split}
                file.write(json.dumps(line | {"block": place}) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path)
    parser.add_argument("--words", type=int, required=True)
    parser.add_argument("--block", type=int, default=0, help="words of a block; 0 for facts anywhere (default: 0)")
    parser.add_argument("--rows", type=int, required=True, help="rows of the training split")
    arguments = parser.parse_args()
    main(arguments.path, arguments.words, arguments.block, arguments.rows)
