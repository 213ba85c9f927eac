"""Data sets of tasks, a few of one kind in each module: ``--format hotpot-qa`` uses its entry in ``questions.READERS``.

docs/datasets.md says what becomes of the fields of each data set, and with which files its reader was checked.
"""

_NAMES = {
    "clusters": ("mediasum", "multi-news", "multi-xscience"),
    "pairs": ("pairs",),
    "questions": ("contract-nli", "hotpot-qa", "qasper", "quality", "trivia-qa", "wiki-hop"),
    "stories": ("booksum", "narrative-qa", "narrative-qa-summaries"),
    "suites": ("long-bench", "scrolls", "zero-scrolls"),
    "summaries": ("arxiv", "gov-report", "pubmed", "qmsum", "summ-screen", "summ-screen-raw"),
}  # a table, because help needs the names without loading the modules
MODULES = {name: module for module, names in _NAMES.items() for name in names}
"""Name of a data set -> module whose ``READERS`` has its reader."""
DATA_SETS = tuple(sorted(MODULES))
