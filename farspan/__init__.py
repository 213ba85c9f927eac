"""farspan: pretraining data for long-context text-to-text models, and their training.

    import farspan

    farspan.corpus_random(documents="documents", sequence_length=4096, output="corpus")
    farspan.mask("span", preset="bart_ls", corpus="corpus", output="masks")
    dataset = farspan.Dataset("corpus", "masks")

``docs/python.md`` shows more. Every name is imported on first use, from the module listed in ``__init__.pyi``.
"""

import ast
from importlib import import_module
from pathlib import Path
from typing import Any


def _origins() -> dict[str, tuple[str, str]]:
    """Map each public name to the module and the name from which the stub imports it."""
    stub = ast.parse(Path(__file__).with_suffix(".pyi").read_text("utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    return {str(one.asname): (str(node.module), one.name) for node in imports for one in node.names}


_ORIGINS = _origins()
__all__ = sorted([*_ORIGINS, "__version__"])


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("farspan")
    elif name in _ORIGINS:
        module, attribute = _ORIGINS[name]
        value = getattr(import_module(module), attribute)
    else:
        raise AttributeError(f"module 'farspan' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
