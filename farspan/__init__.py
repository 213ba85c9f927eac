"""farspan: pretraining data for long-context text-to-text models, and their training.

    import farspan

    farspan.corpus_random(documents="documents", sequence_length=4096, output="corpus")
    farspan.mask("span", preset="bart_ls", corpus="corpus", output="masks")
    dataset = farspan.Dataset("corpus", "masks")

``docs/python.md`` shows more. Every name is imported on first use.
"""

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any

_NAMES = {
    "corpora.errors": "FarspanError",
    "corpora.schemas.corpus": "open_corpus",
    "corpora.schemas.documents": "open_documents",
    "corpora.schemas.pairs": "open_pairs",
    "corpora.schemas.predictions": "open_predictions",
    "corpora.schemas.sequences": "SequenceBatch",
    "corpora.tokenizers.load": "load_tokenizer",
    "objectives.api.authoring": "SpanObjective",
    "objectives.api.examples": "Examples",
    "objectives.api.mask_set": "open_masks",
    "objectives.api.masks": "MaskBatch",
    "objectives.api.protocol": "Objective load_objective",
    "objectives.rendering.stream": "StreamLayout",
    "objectives.tasks.protocol": "Task load_task",
    "pipelines.evaluation.evaluate": "evaluate",
    "pipelines.evaluation.submit": "submit",
    "pipelines.functions": (
        "check_objective cluster convert corpus_linked corpus_long corpus_random corpus_related documents embed "
        "export finalize generate mask neighbours pairs plot show tokenizer_train"
    ),
    "pipelines.inspect.stats": "stats",
    "pipelines.inspect.verify": "verify",
    "pipelines.push": "push",
    "pipelines.runs.logs": "runs",
    "pipelines.view.command": "view",
    "trainer.command": "train",
    "trainer.dataset": "Dataset",
    "trainer.recipe": "load_recipe",
    "trainer.recipe_reference": "recipes",
}
"""Module -> its public names; ``make stub`` writes the types of a new one into ``__init__.pyi``."""
_ORIGINS = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = sorted([*_ORIGINS, "__version__"])


def _check_visible() -> None:
    """Refuse a script that has the name of one of farspan's packages, before it runs in place of the package."""
    for package in {module.partition(".")[0] for module in _NAMES} - set(sys.modules):
        spec = find_spec(package)
        if spec and spec.submodule_search_locations is None:
            raise ImportError(f"{spec.origin} hides farspan's package {package!r}; give that file another name")


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("farspan")
    elif name in _ORIGINS:
        _check_visible()
        value = getattr(import_module(_ORIGINS[name]), name)
        if name.startswith("open_"):
            _show_in_notebooks()
    else:
        raise AttributeError(f"module 'farspan' has no attribute {name!r}")
    globals()[name] = value
    return value


def _show_in_notebooks() -> None:
    """Let opened artefacts show a row in a notebook's cell; the page's package is imported when one does."""
    from corpora.storage.sharded_rows import ShardedRows

    ShardedRows.as_html = lambda rows: import_module("pipelines.view.command").show_rows(rows)


def __dir__() -> list[str]:
    return __all__
