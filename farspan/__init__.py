"""farspan: pretraining data for long-context text-to-text models, and their training.

    import farspan

    farspan.corpus_random(documents="documents", sequence_length=4096, output="corpus")
    farspan.mask("span", preset="bart_ls", corpus="corpus", output="masks")
    dataset = farspan.Dataset("corpus", "masks")

``docs/python.md`` shows more. Every name is imported on first use, from the module listed in ``__init__.pyi``.
"""

import ast
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any


def _origins() -> dict[str, tuple[str, str]]:
    """Map each public name to the module and the name from which the stub imports it."""
    stub = ast.parse(Path(__file__).with_suffix(".pyi").read_text("utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    return {str(one.asname): (str(node.module), one.name) for node in imports for one in node.names}


_ORIGINS = _origins()
__all__ = sorted([*_ORIGINS, "__version__"])


def _check_visible() -> None:
    """Refuse a script that has the name of one of farspan's packages, before it runs in place of the package."""
    for package in {module.partition(".")[0] for module, _ in _ORIGINS.values()} - set(sys.modules):
        found = find_spec(package)
        if found and found.submodule_search_locations is None:
            raise ImportError(f"{found.origin} hides farspan's package {package!r}; give that file another name")


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("farspan")
    elif name in _ORIGINS:
        module, attribute = _ORIGINS[name]
        _check_visible()
        value = getattr(import_module(module), attribute)
    else:
        raise AttributeError(f"module 'farspan' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
