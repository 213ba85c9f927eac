"""Kinds of tokenizers to train, one module each: ``--kind byte-level-bpe`` calls ``train`` of ``byte_level_bpe``.

Every kind decodes every text exactly and has no unknown characters.
"""

from pkgutil import iter_modules

KINDS = tuple(sorted(module.name.replace("_", "-") for module in iter_modules(__path__)))
