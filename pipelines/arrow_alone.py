"""Arrow without pandas, which it would import for the first array that it makes from Python or numpy."""

from __future__ import annotations

import sys
from typing import Any


def leave_pandas_out() -> None:
    """Keep Arrow from importing pandas before anything else does, as that takes a third of a second.

    Arrow imports pandas once, to tell whether an object is a Series. Here that import fails. When other code imports
    pandas, Arrow looks for it again, so its conversions work as ever.
    """
    if "pandas" in sys.modules:
        return
    from pyarrow.lib import _pandas_api

    sys.meta_path.insert(0, finder := _PandasLater(_pandas_api))
    _pandas_api.is_series(None)
    finder.hidden = False


class _PandasLater:
    """Hides pandas at first, and makes Arrow look again when it is imported later.

    Attributes:
        hidden: True while an import of pandas fails.
    """

    def __init__(self, api: Any) -> None:
        self._api, self.hidden = api, True

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name != "pandas":
            return
        if self.hidden:
            raise ModuleNotFoundError("hidden from Arrow", name=name)
        sys.meta_path.remove(self)
        self._api.__init__()
