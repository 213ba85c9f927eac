"""Data sets of tasks: ``--format hotpot-qa`` uses ``READER`` of the module ``hotpot_qa``.

Modules of several data sets have more readers, which ``MORE_READERS`` lists. docs/datasets.md says what becomes of the
fields of each data set, and with which files its reader was checked.
"""

from pkgutil import iter_modules

MORE_READERS = {
    "narrative-qa-summaries": ("narrative_qa", "SUMMARIES_READER"),
    "pubmed": ("arxiv", "READER"),
    "summ-screen-raw": ("summ_screen", "RAW_READER"),
    "zero-scrolls": ("scrolls", "ZERO_READER"),
}
"""Name of a data set -> module and reader."""
DATA_SETS = tuple(sorted([*(module.name.replace("_", "-") for module in iter_modules(__path__)), *MORE_READERS]))
