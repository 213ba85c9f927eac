"""Formats of raw files: the module ``multi_news`` is what ``--format multi-news`` reads, by its ``READER``."""

from pkgutil import iter_modules

FORMATS = tuple(sorted(module.name.replace("_", "-") for module in iter_modules(__path__)))
