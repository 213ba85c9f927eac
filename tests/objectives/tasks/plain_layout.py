"""``text_to_text`` restated with lists, one pair at a time, without a word of the kernels.

Positions are (id, kind); kinds are ``head`` (begin, prefix and query), ``middle``, ``text``, ``separator`` and ``end``.
"""

from typing import Any, NamedTuple

from tests.objectives.tasks.pairs import BOS, EOS


class Plain(NamedTuple):
    source: list[int]
    marks: list[bool]
    target: list[int]
    prompt: int
    cut: tuple[int, int, int]


def plain_layout(
    options: dict[str, Any],
    texts: dict[str, list[int]],
    documents: list[list[int]],
    query: list[int],
    target: list[int] | None,
) -> Plain:
    """Render one pair.

    Args:
        options: all options of the task.
        texts: ids of ``prefix``, ``middle`` and ``separator``; a special token has one.
        target: None: only the prompt.
    """
    place = options["query"]
    asked = [] if place == "none" else query
    if options["query_length"] is not None:
        around = (options["begin"] and place != "decoder") + str(options["middle"]).startswith("<")
        asked = asked[: max(options["query_length"] - around, 0)]
    begin = [BOS] * options["begin"]
    middle = texts["middle"] if asked else []
    if place == "decoder":
        head, prompt = _of(begin, "head"), [*texts["prefix"], *asked, *middle]
    else:
        shown = asked if place != "none" else []
        head = _of([*begin, *texts["prefix"], *shown], "head") + _of(middle, "middle")
        prompt = []
    end = _of([EOS], "end") * options["end"]
    block = options["block"] if place == "every_block" else options["source_length"]
    size = block - len(head) - len(end)
    limit = options["source_length"] - len(end)

    def blocks(stream: list) -> list:
        pieces = [stream[at : at + size] for at in range(0, max(len(stream), 1), size)]
        joined = [position for piece in pieces for position in (*head, *piece, *end)]
        return joined[: len(joined) - len(end)][:limit] + end

    endless = blocks([(-1, "text")] * (2 * limit))
    room = sum(kind == "text" for _, kind in endless)
    stream = _stream(options, texts["separator"], documents, room)
    if len(stream) > room and options["keep"] == "head_and_tail" and options["documents"] == "joined":
        stream = [*stream[: room - room // 2], *stream[len(stream) - room // 2 :]]
    elif len(stream) > room and (options["keep"] == "head_and_tail" or options["documents"] == "shares"):
        stream = stream[:room]
    source = blocks(stream)
    lost = sum(map(len, documents)) - sum(kind == "text" for _, kind in source)
    lead = [BOS] * options["target_begin"] + prompt
    answer = [] if target is None else target[: options["target_length"] - len(lead) - 1]
    return Plain(
        source=[token for token, _ in source],
        marks=[_marked(options["global_attention"], at, kind) for at, (_, kind) in enumerate(source)],
        target=[*lead, *answer, EOS] if target is not None else lead * (place == "decoder"),
        prompt=len(lead) if place == "decoder" else 0,
        cut=(0 if place == "none" else len(query) - len(asked), lost, len(target or []) - len(answer)),
    )


def _of(ids: list[int], kind: str) -> list[tuple[int, str]]:
    return [(token, kind) for token in ids]


def _stream(options: dict[str, Any], separator: list[int], documents: list[list[int]], room: int) -> list:
    """The documents, each cut to its share, with separators."""
    count = len(documents)
    sizes = [len(document) for document in documents]
    left = room - len(separator) * (count if options["separator_last"] else max(count - 1, 0))
    if options["documents"] == "shares" and options["leftover"] == "lost":
        while count and share_of(room, count) * count > left and share_of(room, count) > 0:
            room -= 1
        sizes = [min(size, share_of(room, count)) for size in sizes]
    elif options["documents"] == "shares":
        given = [0] * count
        while left > 0 and any(one < size for one, size in zip(given, sizes, strict=True)):
            for i in range(count):  # one token each, in turn
                if left > 0 and given[i] < sizes[i]:
                    given[i], left = given[i] + 1, left - 1
        sizes = given
    stream = []
    for i, (document, size) in enumerate(zip(documents, sizes, strict=True)):
        tail = size // 2 if options["keep"] == "head_and_tail" and size < len(document) else 0
        stream += _of([*document[: size - tail], *document[len(document) - tail :]], "text")
        if i < count - 1 or options["separator_last"]:
            stream += _of(separator, "separator")
    return stream


def share_of(room: int, count: int) -> int:
    return max((room + 2) // count - 2, 0)


def _marked(rule: str, at: int, kind: str) -> bool:
    if rule == "bos":
        return at == 0
    if rule == "query":
        return kind == "head"
    return rule == "separators" and (at == 0 or kind == "separator")
