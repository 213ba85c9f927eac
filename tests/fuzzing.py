"""JSON files as nobody would write them: seeded changes of a sound one."""

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

JUNK: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1,
    7,
    2**31,
    2**63,
    10**30,
    0.5,
    -1e308,
    "",
    "x",
    "\x1b[31m\n",
    "../../x",
    "/etc/passwd",
    "a\0b",
    "\ud800",
    [],
    {},
    [None],
    {"x": {}},
    ["part-00000-of-00001.arrow"],
)


def damaged(data: bytes, seed: int) -> bytes:
    """One change of a JSON file, or a few: a key gone, renamed or new, another value or type, bytes cut or flipped."""
    rng = random.Random(seed)
    kind = rng.randrange(12)
    if kind == 0:
        return data[: rng.randrange(len(data))]
    if kind == 1:
        place = rng.randrange(len(data))
        return data[:place] + bytes([rng.randrange(256)]) + data[place + 1 :]
    if kind == 2:
        return rng.choice([b"", b"null", b"[]", b"{}", b"\xff\xfe", b"[" * 50_000, b"1" * 10_000, b"\0" * len(data)])
    value = json.loads(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        _change(value, rng)
    return json.dumps(value).encode()


def _change(value: Any, rng: random.Random) -> None:
    places = list(_places(value))
    if not places:
        return
    table, key = rng.choice(places)
    kind = rng.randrange(10)
    if kind < 2:
        del table[key]
    elif kind == 2 and isinstance(table, dict):
        table[rng.choice(["", "x", "../x", key.upper()])] = table.pop(key)
    elif kind == 3 and isinstance(table, list):
        table.append(copy.deepcopy(table[key]))
    elif kind == 4:
        other, at = rng.choice(places)
        table[key] = copy.deepcopy(other[at])
    elif kind == 5 and type(table[key]) is int:
        table[key] += rng.choice([-1, 1, 64, -64])
    else:
        table[key] = copy.deepcopy(rng.choice(JUNK))


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every table or list inside ``value`` with each of its keys."""
    keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in list(keys):
        yield value, key
        yield from _places(value[key])
