"""Draw one row under each objective, and as a stream: the figures ``show-*.svg`` of the documentation.

The row is a cluster of six documents about an invented island. Their tokenizer and the scorer of ``model_based`` come
from the demo, which must have run before.

    python examples/objective_rows.py demo-output docs/figures
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from demo import NAMES

import farspan

DOCUMENTS = [
    "Sandholm is an island in the north of the Amber Sea, twelve miles from the port of Karby. About 900 people live "
    "there, most of them in the village of Lund. The island has a school, two mills and the oldest lighthouse of the "
    "coast. A ferry connects it with Karby every morning.",
    "The Sandholm lighthouse was built in 1781 by the engineer Tomas Berg. It is made of granite that ships brought "
    "from Karby as ballast. In 1843 a storm broke its lantern, and for eleven years fishermen lit a fire on the roof "
    "of the school instead. Ines Falk repaired the lantern in 1854 and kept the lighthouse until her death.",
    "Ines Falk was a lighthouse keeper and the author of a book about birds. She was born in Karby and came to "
    "Sandholm at the age of nineteen. Every night she counted the birds that flew into the light, and sent the "
    "numbers to the University of Karby. Her book describes 164 species and was printed four times.",
    "Tomas Berg was an engineer of harbours. He drew the pier of Karby, three bridges and the Sandholm lighthouse. "
    "Little is known about his life. Letters show that he disliked the sea and visited the island only once.",
    "The Karby ferry has crossed the sound since 1902. The first ship was a steamer named after Ines Falk, and "
    "carried mail, sheep and forty passengers. Since 1988 a ferry with room for ten cars makes the journey in an "
    "hour. In winter ice stops it for about a week.",
    "Lund is a village in the south of Sandholm. Its harbour was dug by hand between 1866 and 1871. Each summer the "
    "village holds a race of rowing boats around the lighthouse, and the winner keeps a wooden bird for a year. The "
    "museum of Lund shows the notebooks of Ines Falk.",
]
LENGTH = 1024
SHOWN = 2000  # characters of each text
OBJECTIVES: Mapping[str, Mapping[str, Any]] = {
    "span": {"preset": "t5"},
    "principal_sentences": {"preset": "pegasus"},
    "entity_pyramid": {"preset": "primera", "set": {"model": NAMES}},
    "model_based": {"preset": "bart_ls"},
    "cross_document": {"preset": "paper"},
    "fill_in_the_middle": {"set": {"rate": 1, "append": True}},
    "mixture": {"preset": "ul2", "set": {"fit": "window"}},
}


def main() -> None:
    demo, figures = (Path(given).absolute() for given in sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # the figures name the folders
        draw(demo / "tokenizer", demo / "scorer", figures)


def draw(tokenizer: Path, scorer: Path, figures: Path) -> None:
    """Make the corpus and its masks in the current folder, and draw its only row for each objective."""
    Path("island.jsonl").write_text(json.dumps({"text": DOCUMENTS}) + "\n", encoding="utf-8")
    farspan.documents(input="island.jsonl", tokenizer=tokenizer, output="documents", quiet=True)
    farspan.corpus_related(
        documents="documents", sequence_length=LENGTH, room_per_document=2, output="corpus", quiet=True
    )
    for objective, options in OBJECTIVES.items():
        if objective == "model_based":
            options = {**options, "scorer": scorer}
        masks = f"masks-{objective.replace('_', '-')}"
        farspan.mask(objective, corpus="corpus", output=masks, quiet=True, **options)
        figure = figures / f"show-{masks.removeprefix('masks-')}.svg"
        farspan.show(masks, width=SHOWN, figure=figure)
    farspan.show("masks-span", width=0, layout="stream", figure=figures / "show-stream.svg")


if __name__ == "__main__":
    main()
