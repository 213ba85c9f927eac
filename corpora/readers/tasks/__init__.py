"""Data sets of tasks, one module each: ``--format zero-scrolls`` uses ``READER`` from the module ``zero_scrolls``."""

from pkgutil import iter_modules

DATA_SETS = tuple(sorted(module.name.replace("_", "-") for module in iter_modules(__path__)))
