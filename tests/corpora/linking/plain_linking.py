"""A second implementation of linking, one document at a time: the oracle of ``corpora.linking.policies``."""

import math
from dataclasses import dataclass, field
from typing import Any

NAN = "nothing"  # equal to itself, as nan is not


@dataclass
class Plain:
    """A small graph: ``lists[i]`` holds (neighbour, similarity), best first; near-duplicates are frozensets of two."""

    lists: list[list[tuple[int, float]]]
    near_duplicates: set[frozenset[int]]
    lengths: list[int]
    keys: list[tuple[int, int]]
    capacity: int
    room: int
    rows: list[list[tuple[int, int, int, Any]]] = field(default_factory=list)  # (document, offset, size, similarity)
    refused: set[frozenset[int]] = field(default_factory=set)

    def __post_init__(self):
        self.piece = self.capacity - self.room
        self.by_key = sorted(range(len(self.lists)), key=self.keys.__getitem__)

        self.families = {document: {document} for document in range(len(self.lists))}
        for pair in self.near_duplicates:
            whole = set.union(*(self.families[document] for document in pair))
            for document in whole:
                self.families[document] = whole

    def near(self, one, other):
        return one in self.families[other]

    def repeated(self, used):
        """Unused documents that another one of their family stands for."""
        found = set()
        for document in set(range(len(self.lists))) - used:
            family = sorted(self.families[document], key=lambda other: (other not in used, self.keys[other]))
            if family[0] != document:
                found.add(document)
                self.refused.add(frozenset((document, family[0])))
        return found

    def grow(self, linking):
        """Policies nearest and chain."""
        uses = dict.fromkeys(self.by_key, 0)
        for seed in self.by_key:
            if uses[seed] or not self.lengths[seed]:
                continue
            offset, own_rows = 0, []
            while self.lengths[seed] - offset > self.piece:
                own_rows.append([(seed, offset, self.piece, NAN)])
                offset += self.piece
            row = [(seed, offset, self.lengths[seed] - offset, NAN)]
            while item := self.candidate(row, uses, linking):
                row.append(item)
            if self.filled(row) >= linking.min_fill * self.capacity:
                for document, *_ in row:
                    uses[document] += 1
                if linking.policy == "chain" and linking.order == "seed":
                    places = {document: place for place, (document, _) in enumerate(self.lists[seed])}
                    row[1:] = sorted(row[1:], key=lambda item: places.get(item[0], math.inf))
                self.rows += [*own_rows, row]
        return self

    def filled(self, row):
        return sum(size + self.room for _, _, size, _ in row)

    def candidate(self, row, uses, linking):
        members = [document for document, *_ in row]
        for query in members[:1] if linking.policy == "nearest" else reversed(members):
            for document, similarity in self.lists[query]:
                length = self.lengths[document]
                if (
                    similarity < linking.floor
                    or document in members
                    or not 0 < length <= self.piece
                    or uses[document] == linking.max_uses
                    or self.filled(row) + length + self.room > self.capacity
                ):
                    continue
                if clash := [member for member in members if self.near(member, document)]:
                    self.refused.add(frozenset((clash[0], document)))
                    continue
                return document, 0, length, similarity
        return None

    def walk(self, linking):
        """Policy path."""
        links: list[dict[int, Any]] = [{} for _ in self.lists]
        places = [{other: place for place, (other, _) in enumerate(row)} for row in self.lists]
        for one, row in enumerate(self.lists):
            for other, similarity in row:
                if (
                    one != other
                    and similarity >= linking.floor
                    and self.lengths[one]
                    and self.lengths[other]
                    and not self.near(one, other)
                ):
                    links[one][other] = similarity
                    links[other].setdefault(one, None)
        for one, row_links in enumerate(links):
            for other in row_links:
                if row_links[other] is None:
                    row_links[other] = links[other][one]
        unvisited = {document for document in self.by_key if self.lengths[document]}
        path = []
        while unvisited:
            start = min(unvisited, key=lambda document: (len(links[document]), self.keys[document]))
            unvisited.remove(start)
            arms = []
            for _ in range(2):
                arm, document = [], start
                while near := [other for other in links[document] if other in unvisited]:
                    place = places[document]
                    order = (
                        (-links[document][other], place.get(other, math.inf), self.keys[other], other) for other in near
                    )
                    following = min(order)[-1]
                    arm.append((following, links[document][following]))
                    unvisited.remove(following)
                    document = following
                arms.append(arm)
            documents = [
                *(document for document, _ in reversed(arms[0])),
                start,
                *(document for document, _ in arms[1]),
            ]
            steps = [
                NAN,
                *(similarity for _, similarity in reversed(arms[0])),
                *(similarity for _, similarity in arms[1]),
            ]
            path += zip(documents, steps, strict=True)
        self.cut(path)
        self.refused = set(self.near_duplicates)
        return self

    def cut(self, path):
        for document, similarity in path:
            offset = 0
            while offset < self.lengths[document]:
                if not self.rows or self.filled(self.rows[-1]) >= self.piece:
                    self.rows.append([])
                row = self.rows[-1]
                size = min(self.lengths[document] - offset, self.piece - self.filled(row))
                row.append((document, offset, size, similarity if row and not offset else NAN))
                offset += size
