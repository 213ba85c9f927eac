"""Tar and zip archives: cut, damaged and hostile, and read in little memory."""

import io
import zipfile

import pytest

from corpora.readers import ReadOptions
from corpora.readers.selection import plan_ranges, read_records
from tests.corpora.readers import pack, read_all, reasons, stored, tar, write

BOOKS3 = ReadOptions(format="books3")
FOLDER = "books3/the-eye.eu/public/Books/Bibliotik"
BOOKS = {
    f"{FOLDER}/{letter}/{letter} Long Title, Volume {n} - Naïve Äuthor {'x' * 90}.epub.txt": (
        f"Chapter {n}\r\n\r\n" + f"It was a dark and stormy night in {letter}. " * (1 + 40 * n)
    )
    for n, letter in enumerate("ABCDEFGH")
}


@pytest.mark.parametrize("suffix", [".tar", ".tar.gz", ".tar.zst"])
def test_the_members_before_a_cut_are_kept(tmp_path, suffix):
    path = tmp_path / f"books3{suffix}"
    data = tar(BOOKS)
    whole, names = list(BOOKS.values()), list(BOOKS)
    last = data.rindex(b"It was a dark")
    headers = [place for place in range(0, len(data), 512) if data[place + 257 : place + 262] == b"ustar"]
    cuts = {
        last: 7,  # inside the last member
        headers[4] + 100: None,  # inside a header
        headers[4]: None,  # between two members
        len(data.rstrip(b"\0")) + 511 & ~511: 8,  # the end mark alone is missing
    }
    for cut, kept in cuts.items():
        write(path, data[:cut])
        for target in (4000, 1 << 30):
            block = read_all(path, BOOKS3, target)
            assert block.texts == whole[: len(block.texts)]
            assert kept is None or len(block.texts) == kept
            ((key, reason),) = reasons(block)
            assert reason == "truncated_file"
            assert kept != 7 or key == names[7]
            assert block.lost == path.stat().st_size


def test_a_cut_of_the_compressed_file_keeps_the_members_before_it(tmp_path):
    path = pack(tmp_path / "books3.tar.gz", BOOKS)
    packed = path.read_bytes()
    path.write_bytes(packed[: len(packed) * 2 // 3])
    block = read_all(path, BOOKS3)
    assert block.texts == list(BOOKS.values())[: len(block.texts)]
    assert len(block.texts) >= 3
    assert [reason for _, reason in reasons(block)] == ["truncated_file"]


def test_a_damaged_header_is_no_end(tmp_path):
    path = tmp_path / "books3.tar"
    data = bytearray(tar({f"{n}.txt": text for n, text in enumerate(BOOKS.values())}))
    headers = [place for place in range(0, len(data), 512) if data[place + 257 : place + 262] == b"ustar"]
    data[headers[5]] ^= 1
    path.write_bytes(data)
    for target in (1, 1 << 30):
        block = read_all(path, BOOKS3, target)
        assert block.texts == list(BOOKS.values())[:5]
        assert reasons(block) == [(str(headers[5]), "unreadable_file")]


def rewritten(header: bytes, size: bytes, kind: bytes | None = None) -> bytes:
    """A tar header of another size and kind, its checksum mended."""
    raw = bytearray(header)
    raw[124:136] = size
    if kind:
        raw[156:157] = kind
    raw[148:156] = b" " * 8
    raw[148:156] = b"%06o\0 " % sum(raw)
    return bytes(raw)


@pytest.mark.parametrize(
    ("size", "kind"),
    [
        (b"\xff" * 11 + b"\x00", None),  # -256: leads backwards
        (b"77777777777\0", b"L"),  # a name of 8 GiB
        (b"77777777777\0", b"x"),
        (b"\x80" + b"\xff" * 11, None),
    ],
)
@pytest.mark.parametrize("suffix", [".tar", ".tar.gz"])
def test_a_hostile_header_ends_the_archive_and_nothing_else(tmp_path, suffix, size, kind):
    good = tar({"good.txt": "good"})[:1024]
    bad = rewritten(tar({"bad.txt": "bad"})[:512], size, kind)
    block = read_all(write(tmp_path / f"a{suffix}", good + bad + bytes(2048)), BOOKS3)
    assert block.texts == ["good"]
    assert len(block.rejects) == 1


def test_bad_members_are_rejects_and_their_neighbours_are_kept(tmp_path):
    path = tmp_path / "a.tar"
    members = {
        "a.txt": "first",
        "../../etc/cron.d/a.txt": "x",
        "/etc/a.txt": "x",
        "C:\\a.txt": "x",
        "b/../../a.txt": "x",
        "latin\udce9.txt": "x",
        "latin.txt": b"caf\xe9",
        "blank.txt": " \n",
        "empty.txt": b"",
        "long.txt": b"x" * 2000,
        "z.text": "last",
    }
    path.write_bytes(tar([*members.items(), ("a.txt", "again")]))
    for target in (1, 1 << 30):
        block = read_all(path, ReadOptions(format="books3", max_record_bytes=1999), target)
        assert dict(zip(block.keys, block.texts, strict=True)) == {"a.txt": "first", "z.text": "last"}
        found = dict(reasons(block))
        assert found.pop("latin.txt") == "invalid_utf8"
        assert found.pop("blank.txt") == found.pop("empty.txt") == "empty_text"
        assert found.pop("long.txt") == "too_long"
        assert found.pop("a.txt") == "duplicate_name"
        assert set(found) == {"../../etc/cron.d/a.txt", "/etc/a.txt", "C:\\a.txt", "b/../../a.txt", "latin\\udce9.txt"}
        assert set(found.values()) == {"unsafe_name"}
    assert [path.name for path in tmp_path.iterdir()] == ["a.tar"]


@pytest.mark.parametrize("suffix", [".tar", ".tar.gz", ".zip"])
def test_an_archive_without_texts_says_so(tmp_path, suffix):
    path = pack(tmp_path / f"a{suffix}", {"a.jpg": b"\xff"})
    block = read_all(path, BOOKS3)
    assert (reasons(block), block.lost) == ([("0", "no_member")], path.stat().st_size)


@pytest.mark.parametrize("suffix", [".tar", ".tar.gz", ".tar.xz", ".zip"])
def test_other_content_than_the_name_says(tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    path.write_bytes(b"<html>not found</html>" * 100)
    (reject,) = read_all(path, BOOKS3).rejects
    assert reject.reason == "unreadable_file"


def test_zip_archives_are_cut_at_members(tmp_path):
    path = pack(tmp_path / "books.zip", {"README": "no text", **BOOKS})
    for target in (1, 500, 1 << 30):
        block = read_all(path, BOOKS3, target)
        assert (block.keys, block.texts, block.rejects) == (list(BOOKS), list(BOOKS.values()), [])
    assert len(plan_ranges(str(path), BOOKS3, 1)) == len(BOOKS) + 1


def test_damage_in_a_zip_costs_its_member_only_and_a_cut_the_archive(tmp_path):
    path = pack(tmp_path / "books.zip", BOOKS)
    data = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        member = archive.infolist()[3]
    place = member.header_offset + 30 + len(member.filename.encode()) + member.compress_size // 2
    data[place : place + 4] = b"\xff\xff\xff\xff"
    path.write_bytes(data)
    for target in (1, 1 << 30):
        block = read_all(path, BOOKS3, target)
        assert block.keys == [name for name in BOOKS if name != member.filename]
        assert reasons(block) == [(member.filename, "unreadable_file")]
    path.write_bytes(data[:-40])
    (reject,) = read_all(path, BOOKS3).rejects
    assert (reject.key, reject.reason) == ("0", "unreadable_file")
    assert "has lost its directory: fetch it again" in reject.detail


def test_an_archive_is_read_in_little_memory():
    """A book of 400 MB of zeros packs to nothing; no more of it is held than the limit."""
    import tracemalloc

    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("bomb.txt", "w") as member:
            for _ in range(200):
                member.write(bytes(1 << 20))
        archive.writestr("good.txt", "good")
    options = ReadOptions(format="books3", max_record_bytes=1 << 20)
    with stored("a.zip", file.getvalue()):
        (piece,) = plan_ranges("a.zip", options, 1 << 30)
        tracemalloc.start()
        (block,) = read_records(piece, options)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert block.texts == ["good"]
    assert reasons(block) == [("bomb.txt", "too_long")]
    assert peak < 12 << 20
