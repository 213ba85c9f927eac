"""Formats of raw files, one module each: ``--format multi-news`` uses ``READER`` from the module ``multi_news``."""

from pkgutil import iter_modules

FORMATS = tuple(sorted(module.name.replace("_", "-") for module in iter_modules(__path__)))
