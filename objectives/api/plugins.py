"""Plug-ins: objects that this and other packages register under an entry-point group.

An entry point loads a class (or any callable) that takes the options as keyword arguments and may have ``presets``:
name -> options. Entry points are known from when their package is installed: after adding one, install it again
(``pip install -e .``).
"""

from __future__ import annotations

import inspect
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass
from functools import lru_cache
from itertools import compress
from types import NoneType
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from corpora.errors import FarspanError, nearest

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

OBJECTIVE_GROUP, TASK_GROUP = "farspan.objectives", "farspan.tasks"
OWN_ERRORS = (Exception, SystemExit)
"""Errors of a package's own code: it may raise anything, and must not end the process."""


@dataclass(frozen=True)
class Plugins:
    """All plug-ins of one kind.

    Attributes:
        group: their entry-point group.
        noun: the kind, for messages, e.g. ``objective``.
        members: required members of a plug-in, name -> type.
        guide: page that explains how to write one.
    """

    group: str
    noun: str
    members: Mapping[str, Any]
    guide: str

    def installed(self) -> dict[str, EntryPoint]:
        """Return the entry points of all installed plug-ins, by name."""
        return entries(self.group)

    def factory(self, name: str) -> Any:
        """Return the callable that builds the plug-in ``name`` from its options."""
        known = self.installed()
        if name not in known:
            raise FarspanError(f"no {self.noun} is called {name!r}{nearest(name, known)}; {self._listed}")
        where = self._where(known[name])
        try:
            factory = known[name].load()
        except OWN_ERRORS as error:
            raise FarspanError(
                f"{where} cannot be loaded: {_one_line(error)}; repair that package, or install it"
            ) from error
        try:
            inspect.signature(factory)
        except (TypeError, ValueError):  # not callable, or without a signature
            raise FarspanError(
                f"{where} is {factory!r:.80}; it must name a class, or a function that makes {self._a_noun}"
            ) from None
        if fields := _undecorated(factory):
            raise FarspanError(
                f"{where} has the options {', '.join(fields)}, but is not a dataclass itself, so they are ignored; "
                "write @dataclass(frozen=True) above the class"
            )
        return factory

    def presets(self) -> dict[str, Mapping[str, Mapping[str, Any]]]:
        """Return the presets of each installed plug-in, in the order of the names."""
        return {name: getattr(self.factory(name), "presets", {}) for name in sorted(self.installed())}

    def _sound_presets(self) -> tuple[dict[str, Mapping[str, Mapping[str, Any]]], FarspanError | None]:
        """Return the presets of every plug-in that can be loaded, and the error of one that cannot."""
        presets, broken = {}, None
        for name in sorted(self.installed()):
            try:
                presets[name] = getattr(self.factory(name), "presets", {})
            except FarspanError as error:
                broken = error
        return presets, broken

    def resolve(self, name: str, preset: str | None = None) -> tuple[str, str | None]:
        """Resolve a name, of a plug-in or of a preset, to plug-in and preset."""
        known = self.installed()
        if name in known:
            return name, preset
        presets, broken = self._sound_presets()
        owners = [one for one, names in presets.items() if name in names]
        if not owners:
            if hint := nearest(name, known):
                raise FarspanError(f"no {self.noun} is called {name!r}{hint}; {self._listed}")
            if broken:
                raise broken  # the name may be a preset of that package
            words = list(dict.fromkeys(word for names in presets.values() for word in names))
            hint = nearest(name, words) or f"; presets: {', '.join(words)}"
            raise FarspanError(f"no {self.noun} or preset is called {name!r}{hint}; {self._listed}")
        if len(owners) > 1:
            raise FarspanError(f"{name!r} is a preset of {' and '.join(owners)}; give one of these and --preset {name}")
        if preset is not None:
            raise FarspanError(f"{name!r} is itself a preset of {owners[0]}; leave out --preset {preset}")
        return owners[0], name

    def load(self, name: str, preset: str | None = None, options: Mapping[str, Any] | None = None) -> Any:
        """Build the plug-in ``name`` from a preset, overridden by ``options``."""
        factory = self.factory(name)
        presets: Mapping[str, Mapping[str, Any]] = getattr(factory, "presets", {})
        if preset is not None and preset not in presets:
            names = ", ".join(presets) or "none"
            raise FarspanError(
                f"{self.noun} {name} has no preset {preset!r}{nearest(preset, presets)}; its presets: {names}"
            )
        accepted = inspect.signature(factory).parameters
        values = {**(presets[preset] if preset else {}), **_with_null(factory, accepted, options or {})}
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in accepted.values()):
            for option in values:
                if option not in accepted:
                    raise FarspanError(
                        f"{self.noun} {name} has no option {option!r}{nearest(option, accepted)}; "
                        f"its options: {', '.join(accepted)}"
                    )
        return self._complete(name, factory, values)

    def _complete(self, name: str, factory: Any, values: Mapping[str, Any]) -> Any:
        """Build the plug-in and check that it has all required members."""
        where = self._where(self.installed()[name])
        try:
            plugin = factory(**values)
            lacking = [
                member for member, kind in self.members.items() if not isinstance(getattr(plugin, member, None), kind)
            ]
        except FarspanError:
            raise
        except OWN_ERRORS as error:
            raise FarspanError(f"{where} makes no {self.noun} of {dict(values)}: {_one_line(error)}") from error
        if lacking:
            raise FarspanError(
                f"{where} makes {type(plugin).__name__}, which lacks {', '.join(lacking)}; {self._a_noun} has "
                f"{', '.join(self.members)} ({self.guide})"
            )
        if plugin.name != name:
            raise FarspanError(f"{where} makes {self._a_noun} with name {plugin.name!r}; its name must be {name!r}")
        return plugin

    @property
    def _listed(self) -> str:
        known = ", ".join(sorted(self.installed()))
        return f"installed: {known}" if known else "none is installed: install farspan again, e.g. pip install -e ."

    @property
    def _a_noun(self) -> str:
        return f"{'an' if self.noun[0] in 'aeiou' else 'a'} {self.noun}"

    def _where(self, entry: EntryPoint) -> str:
        package = f" of {entry.dist.name}" if entry.dist else ""
        return f"{self.noun} {entry.name}: entry point {entry.value}{package}"


def entries(group: str) -> dict[str, EntryPoint]:
    """Return the installed entry points of a group, by name."""
    return dict(_installed(group, tuple(sys.path)))


@lru_cache(maxsize=16)  # a search takes milliseconds, and every construction of a plug-in needs one
def _installed(group: str, search_path: tuple[str, ...]) -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points  # slow to import, and commands that read need none

    return {entry.name: entry for entry in entry_points(group=group)}


@contextmanager
def plugin_errors() -> Iterator[None]:
    """Convert errors from the code of other packages' plug-ins inside the ``with`` block."""
    try:
        yield
    except FarspanError:
        raise
    except BaseException as error:
        if fault := _fault(error):
            raise FarspanError(fault) from error
        raise


def _fault(error: BaseException) -> str:
    """Describe an error that passed through the code of another package's plug-in; empty for any other error."""
    frames, places = [], []
    for frame, line in traceback.walk_tb(error.__traceback__):
        code = frame.f_code
        frames.append(f"{frame.f_globals.get('__name__', '')}:{code.co_qualname}")
        places.append(f"{code.co_filename}:{line}")
    plugins = [entry for group in (OBJECTIVE_GROUP, TASK_GROUP) for entry in entries(group).values()]
    involved = [any(frame.startswith(entry.value) for frame in frames) for entry in plugins]
    for entry in [*compress(plugins, involved), *plugins]:  # the plug-in itself before others of its package
        within = [_package(frame) == _package(entry.module) for frame in frames]
        if any(within) and _package(entry.module) != _package(__name__) and not _is_signal(error):
            package = f" of {entry.dist.name}" if entry.dist else ""
            place = list(compress(places, within))[-1]
            return f"plug-in {entry.name}{package} failed: {_one_line(error)} ({place}); correct that package"
    return ""


def _is_signal(error: BaseException) -> bool:
    """True for an exception that a signal raised, at any line; farspan's own are no subclasses of ``Exception``."""
    ours = _package(type(error).__module__) in ("trainer", "pipelines")
    return isinstance(error, KeyboardInterrupt) or (ours and not isinstance(error, Exception))


def _package(module: str) -> str:
    return module.partition(":")[0].partition(".")[0]


def _one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0]


def _undecorated(factory: Any) -> list[str]:
    """Return the annotated options of a class that inherits from a dataclass, but lacks the decorator itself."""
    if not isinstance(factory, type) or not is_dataclass(factory):
        return []
    if "__dataclass_fields__" in vars(factory) or "__init__" in vars(factory):
        return []
    classes = [inspect.get_annotations(one) for one in factory.__mro__]
    shared = {name for one in classes for name, hint in one.items() if "ClassVar" in str(hint)}
    return [name for name in classes[0] if name not in shared]


def _with_null(factory: Any, accepted: Mapping[str, inspect.Parameter], options: Mapping[str, Any]) -> dict[str, Any]:
    """Replace ``"null"``, as recipes spell None, by None in options that may be None."""
    try:
        written_out = isinstance(factory, type) and not is_dataclass(factory)  # its options are those of __init__
        hints = get_type_hints(getattr(factory, "__init__") if written_out else factory)  # noqa: B009
    except (NameError, TypeError):  # annotations with names that exist only for type checkers
        hints = {}

    def optional(option: str) -> bool:
        return NoneType in get_args(hints.get(option)) or (option in accepted and accepted[option].default is None)

    return {option: None if value == "null" and optional(option) else value for option, value in options.items()}
