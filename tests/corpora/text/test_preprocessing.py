"""Steps of preprocessing on the texts that they are for, and on those that they are not for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpora.readers import ReadOptions
from corpora.text.preprocessing import (
    STEPS,
    html_text,
    join_lines,
    looks_like_html,
    squeeze_blank,
    strip_gutenberg,
    strip_speech_marks,
    strip_subtitle_marks,
)
from tests.corpora.readers import read_all

BOOK = "CHAPTER I.\r\n\r\nIt was the best of times.\r\n\r\nTHE END"
NEW = (
    "\ufeffThe Project Gutenberg EBook of A Tale, by Someone\r\n\r\nThis eBook is for the use of anyone\r\n\r\n"
    "*** START OF {this} PROJECT GUTENBERG EBOOK A TALE OF {title} ***\r\n\r\n\r\n{book}\r\n\r\n"
    "*** END OF {this} PROJECT GUTENBERG EBOOK A TALE ***\r\n\r\nUpdated editions will replace the previous one"
)
OLD = (
    "**The Project Gutenberg Etext of A Tale**\n\n***START**THE SMALL PRINT!**FOR PUBLIC DOMAIN ETEXTS**START***\n"
    "Why is this here?\n*END*THE SMALL PRINT! FOR PUBLIC DOMAIN ETEXTS*Ver.04.29.93*END*\n\n{book}\n\n"
    "End of the Project Gutenberg Etext of A Tale\n"
)


@pytest.mark.parametrize(
    "text",
    [
        NEW.format(this="THIS", title="TWO CITIES", book=BOOK),
        NEW.format(this="THE", title="TWO\r\nVERY LONG CITIES", book=BOOK),
        NEW.replace("*** START", "***START").format(this="THIS", title="X", book=BOOK),
        NEW.partition("*** END")[0].format(this="THE", title="X", book=BOOK) + "End of Project Gutenberg's A Tale",
        OLD.format(book=BOOK),
        BOOK,
        "\r\n\n" + BOOK + "\n",
    ],
)
def test_a_book_is_what_stands_between_the_markers(text):
    assert strip_gutenberg(text) == BOOK


def test_a_book_that_speaks_of_the_project_keeps_its_words():
    text = "He began the Project Gutenberg in 1971. At the end of Project Gutenberg's first year *** he rested."
    assert strip_gutenberg(text) == text


def test_wrapped_lines_become_paragraphs():
    text = "A paragraph that\r\nis wrapped at  \nsome column.\n\nAnother\none.\n    a verse\n    and its end\n\n\nLast"
    assert join_lines(text) == (
        "A paragraph that is wrapped at some column.\n\nAnother one.\n    a verse\n    and its end\n\n\nLast"
    )


def test_blank_is_squeezed():
    text = "\n\n  Title \t of\u00a0it  \r\n\r\n\r\n \t\n  Text   here. \n"
    assert squeeze_blank(text) == "Title of it\n\nText here."


def test_subtitle_marks_go_and_words_stay():
    text = '{\\an8}<i>Is it</i> you?\n<font color="#ff0000">♪ La, la ♪</font>\n1 < 2 > 0, <b> {sic} <unknown>'
    assert strip_subtitle_marks(text) == "Is it you?\n La, la \n1 < 2 > 0,  {sic} <unknown>"


@pytest.mark.parametrize("step", STEPS)
@given(text=st.text(alphabet=" \n\r\tab.*<>i{}\\", max_size=60))
def test_a_step_done_twice_is_done_once_and_loses_no_word(step, text):
    done = STEPS[step](text)
    if step != "strip-subtitle-marks":
        assert STEPS[step](done) == done
        assert done.split() == text.split()
    assert len(done) <= len(text)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(
    "piece", [" ", "\n", " \n", "\t", "*** START OF THE PROJECT GUTENBERG EBOOK ", "<font ", "{\\"]
)
def test_long_runs_take_no_time(step, piece):
    """A pattern that tries every place against every length would not end."""
    STEPS[step](piece * 100_000)


def test_options_choose_steps_and_what_is_too_short_is_filtered():
    data = b"\n".join(
        [b"*** START OF THE PROJECT GUTENBERG EBOOK X ***", b"<i>five!</i>", b"<i></i>", b"  six  six  ", b"\xff"]
    )
    options = ReadOptions(format="lines", preprocess=("strip-subtitle-marks", "squeeze-blank"), min_characters=6)
    block = read_all("a.txt", options, data=data)
    assert block.texts == ["*** START OF THE PROJECT GUTENBERG EBOOK X ***", "six six"]
    assert (block.filtered, len(block.rejects), block.read) == (2, 1, 5)
    options = ReadOptions(format="lines", preprocess=("strip-gutenberg",))
    block = read_all("a.txt", options, data=data)
    assert (block.filtered, len(block.texts), block.read) == (1, 3, 5)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Ann: {vocalsound} Red {disfmarker} one , {gap}", "Ann: Red one , "),
        ("{ pause } { nonvocalsound } yes", "yes"),
        ("{comment} {vocal sound} {x}", "{comment} {vocal sound} {x}"),
    ],
)
def test_marks_of_speech_recognition_are_removed_as_published(text, expected):
    assert strip_speech_marks(text) == expected


MENU = "<html><head><title>Scripts</title><script>if (window) { a < b }</script></head><body><a href=x>All films</a>"


def test_text_is_the_visible_part_with_a_line_for_each_block():
    page = (
        "<!DOCTYPE html><style>p {}</style><h1>A  tale</h1>\n"
        "<p>Tom &amp;\nAnn &#8212; <i>both</i>.</p><p>Gone.<br/>Yes</p>"
    )
    assert html_text(page) == "A tale\nTom & Ann — both.\nGone.\nYes"


def test_a_script_in_pre_keeps_its_lines_and_loses_the_menu():
    scene = "<b>INT. HALL</b>\n\n    TOM\n  Who is there?\n"
    page = f"{MENU}<td><pre>{scene}</pre></td></body></html>"
    assert html_text(page) == "INT. HALL\n\n    TOM\n  Who is there?"


def test_a_short_pre_does_not_hide_the_page():
    assert html_text(f"{MENU}<p>Once there was a king in a tower.</p><pre>The end</pre>").startswith("All films\nOnce")


@pytest.mark.parametrize(
    "page",
    ["<html><head><title>Open<body><p>Kept text", "<p>Kept text<b", "<div><p>Kept text</b></i></pre>", "Kept text"],
)
def test_damaged_markup_loses_no_text(page):
    assert "Kept text" in html_text(page)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<HTML><p>a", True),
        ("\n<!doctype  html>", True),
        ("x <pre>y", True),
        ("a < b and <i>c</i>", False),
        ("", False),
    ],
)
def test_pages_are_told_from_plain_text(text, expected):
    assert looks_like_html(text) is expected


def test_long_runs_of_blanks_take_linear_time():
    run = " \t" * 500_000
    assert html_text(f"<pre>a{run}b{run}\nc</pre>") == f"a{run}b\nc"
