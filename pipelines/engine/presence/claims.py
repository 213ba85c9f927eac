"""Claims, files that exactly one process creates, and the rule for the next claim.

A claim is held by the process whose name its file holds, until it is given back (the file goes), the process has failed
(the file says so) or is dead; then the next generation of the claim may be created. So the generation counts the
processes that died or failed with it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from corpora.storage import files


@dataclass(frozen=True)
class Owner:
    """The process that made a claim.

    Attributes:
        name: of the process.
        failure: message with which its attempt failed; empty while it works.
    """

    name: str
    failure: str = ""


@dataclass(frozen=True)
class Claims:
    """The claims of a process in one folder.

    Attributes:
        folder: exists, if it is local.
        owner: name of the process.
    """

    folder: str
    owner: str

    def create(self, name: str, generation: int = 1) -> bool:
        """Claim what has a name; False if another process was first.

        A store may create the file and lose its answer, so that a repeated request finds it there: its owner decides.
        """
        made = files.create_new(self._path(name, generation), self.owner.encode())
        return made or self.owner_of(name, generation) == Owner(self.owner)

    def owner_of(self, name: str, generation: int) -> Owner | None:
        """Return the process that made a claim; None if there is none (any more).

        A process that was killed between the creation of the file and its first byte leaves a name that no process has.
        """
        try:
            owner, _, failure = files.read_bytes(self._path(name, generation)).decode(errors="replace").partition("\n")
        except FileNotFoundError:
            return None
        return Owner(owner or f"?{name}.{generation}", failure)

    def fail(self, name: str, generation: int, message: bytes) -> None:
        """Pass a claim on to another process."""
        files.write_bytes(self._path(name, generation), self.owner.encode() + b"\n" + message)

    def give_back(self, name: str, generation: int) -> None:
        files.delete([self._path(name, generation)])

    def first(self) -> set[str]:
        """Names whose first claim was made and not given back; takes less time than ``generations``."""
        return {name.removesuffix(".1") for name in files.names(self.folder) if name.endswith(".1")}

    def generations(self) -> dict[str, int]:
        """Name -> highest generation of its claims."""
        return highest_generations(files.names(self.folder))

    def _path(self, name: str, generation: int) -> str:
        return os.path.join(self.folder, f"{name}.{generation}")


def highest_generations(names: Iterable[str]) -> dict[str, int]:
    """Name -> highest generation, from the names of the files of claims; other files are passed over."""
    found: dict[str, int] = {}
    for file in names:
        name, _, generation = file.rpartition(".")
        if name and generation.isdecimal():
            found[name] = max(found.get(name, 0), int(generation))
    return found


def next_generation(generation: int, owner: Owner | None, dead: bool) -> int | None:
    """The generation of a claim that may be created now; None while its owner works.

    Args:
        generation: the highest that was made; 0 for none.
        owner: who made it; None if it was given back.
        dead: True if that process has ended or is past its lease.
    """
    if generation == 0:
        return 1
    if owner is None:
        return generation
    return generation + 1 if dead or owner.failure else None
