"""All benchmarks of docs/benchmarks.md, one after the other: ``python -m benchmarks``.

Options go to no script; run a script by itself to change sizes, or to have datatrove beside it. Run alone are
``random_rows.py`` and ``startup.py``, whose peers live in environments of their own, ``train_step.py``, which needs
accelerate, ``gpu.py``, which needs a GPU, ``loading.py``, which writes a store of some hundred MB, and ``engines.py``,
which takes the flags of a cluster. Run alone because they take long are ``engine_claims.py`` and ``engine_kills.py``,
whose figures are in docs/engines.md, ``scale.py`` and ``growth.py``, which docs/scale.md is made of, ``lengths.py``,
and ``study_power.py``, whose table is in docs/study.md.
"""

from __future__ import annotations

import os
import subprocess
import sys

SCRIPTS = (
    "reading.py",
    "loader.py",
    "span_masking.py",
    "ul2_mixture.py",
    "task_rendering.py",
    "sentence_scores.py",
    "rouge_metric.py",
    "principal_sentences.py",
    "entity_pyramid.py",
    "model_based.py",
    "attention_models.py",
    "checkpoint_stall.py",
    "sentence_splitting.py",
    "documents.py",
    "export.py",
    "memory.py",
    "packed_pairs.py",
    "packing.py",
    "chain_building.py",
    "neighbour_search.py",
    "generation.py",
    "view.py",
)


def main() -> None:
    if sys.argv[1:]:
        raise SystemExit(__doc__)
    here = os.path.dirname(os.path.abspath(__file__))
    failed = [script for script in SCRIPTS if subprocess.run([sys.executable, os.path.join(here, script)]).returncode]
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
