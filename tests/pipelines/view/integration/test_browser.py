"""The pages in Chromium: each feature used as a reader would, and pictures taken for the documentation."""

import pytest

from pipelines.pages.options import View
from pipelines.view.command import command
from tests.pipelines.view.integration.chromium import (
    MARKS,
    PHONE,
    ActionChains,
    Keys,
    emulated,
    find,
    find_all,
    fits_the_width,
    press,
    style,
    take_picture,
    texts,
    wait,
    wait_for_row,
)
from trainer.checkpoint.run_files import seal_line

pytestmark = MARKS


def test_three_objectives_side_by_side(browser, address):
    browser.get(address + "tales/0?theme=light")
    columns = find_all(browser, ".column")
    assert texts(browser, ".column h3") == ["t5", "pegasus", "cdlm"]
    assert len({column.rect["y"] for column in columns}) == 1
    for kind in ("hidden", "shown"):
        assert find_all(browser, f"mark.k-{kind}")
    lines = {style(browser, f"mark.k-{kind}", "textDecorationStyle") for kind in ("hidden", "shown", "replaced")}
    assert lines == {"solid", "double", "wavy"}  # told apart without colour
    assert "<sentinel-0>" in find(browser, ".seen").text
    assert fits_the_width(browser)
    take_picture(browser, "view-objectives", 1400, 1000)


def test_the_list_of_artefacts(browser, address):
    browser.get(address)
    lines = dict(zip(texts(browser, ".rows .title"), texts(browser, ".rows tbody tr"), strict=True))
    assert {"tales", "families", "linked", "long-model", "hostile"} == set(lines)
    assert "t5, pegasus, cdlm" in lines["tales"]
    find(browser, ".rows a[href$='linked/']").click()
    wait(browser, lambda: browser.title == "linked · farspan")
    find(browser, ".rows tbody a").click()
    wait(browser, lambda: browser.title == "0 · linked · farspan")
    find(browser, "h1 a").click()
    wait(browser, lambda: browser.title == "linked · farspan")
    find(browser, ".brand").click()
    wait(browser, lambda: find_all(browser, ".rows .title"))


def test_a_row_begins_with_its_documents(browser, address):
    browser.get(address + "tales/0")
    blocks = find_all(browser, ".column:first-child .block.prose")
    assert len(blocks) == len(find_all(browser, ".overview .parts rect")) > 3
    assert texts(browser, ".column:first-child .block.prose .number") == [str(n + 1) for n in range(len(blocks))]
    assert all(int(style(browser, ".block.prose", "borderBottomWidth")[:1]) for _ in blocks[:1])
    last = find_all(browser, ".overview .parts a")[-1]
    ActionChains(browser).move_to_element(last).click().perform()
    wait(browser, lambda: browser.current_url.endswith(f"#part-0-{len(blocks) - 1}"))
    assert browser.execute_script("return arguments[0].getBoundingClientRect().top < innerHeight", blocks[-1])


def test_a_reason_leads_to_its_span(browser, address):
    browser.get(address + "tales/0")
    line = find(browser, ".why tr")
    line.click()
    wait(browser, lambda: find_all(browser, "mark.arrived"))
    mark = find(browser, "mark.arrived")
    assert mark.text.split()[:3] == find(line, ".said bdi").text.split()[:3]
    assert browser.execute_script(
        "const r = arguments[0].getBoundingClientRect(); return r.top > 0 && r.bottom < innerHeight", mark
    )
    ActionChains(browser).move_to_element(mark).perform()
    assert "near-by" in line.get_attribute("class")


def test_entities_and_their_cluster(browser, address):
    browser.get(address + "families/0")
    assert texts(browser, ".column h3") == ["primera", "drawn"]
    assert dict(zip(texts(browser, ".facts dt"), texts(browser, ".facts dd"), strict=True))["cluster"].isdigit()
    labels = {label.lower() for label in texts(browser, ".column:first-child .why .label")}
    assert labels
    assert labels <= {"mira valen", "ilo brandt", "port ostra", "the seven sisters", "seven sisters"}


def test_keys(browser, address):
    browser.get(address + "tales/0")
    for key, row in (("j", 1), ("k", 0), (Keys.ARROW_RIGHT, 1), (Keys.ARROW_LEFT, 0)):
        press(browser, key)
        wait_for_row(browser, row)
    press(browser, "g")
    browser.switch_to.active_element.send_keys("2", Keys.ENTER)
    wait_for_row(browser, 2)
    press(browser, "?")
    assert find(browser, "#keys").is_displayed()
    assert len(texts(browser, "#keys kbd")) > 8
    browser.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert not find(browser, "#keys").is_displayed()
    find(browser, "#help").click()
    find(browser, "#keys button").click()
    assert not find(browser, "#keys").is_displayed()


def test_next_previous_and_random(browser, address):
    browser.get(address + "tales/0")
    assert find(browser, "#previous").get_attribute("aria-disabled") == "true"
    find(browser, "#next").click()
    wait_for_row(browser, 1)
    find(browser, "#previous").click()
    wait_for_row(browser, 0)
    seen, rows = set(), int(find(browser, "#goto .all").text.removeprefix("of "))
    while len(seen) < 2:  # another one comes, sooner or later
        find(browser, "#random").click()
        wait(browser, lambda: browser.execute_script("return document.readyState") == "complete")
        seen.add(find(browser, "body").get_attribute("data-row"))
    browser.get(f"{address}tales/{rows - 1}")
    assert find(browser, "#next").get_attribute("aria-disabled") == "true"


def test_looks_are_kept_in_the_address(browser, address):
    browser.get(address + "tales/0?theme=light")
    light = style(browser, "body", "backgroundColor")
    press(browser, "d")
    assert style(browser, "body", "backgroundColor") != light
    press(browser, "b")
    assert "⟦" in style(browser, ".text mark.k-hidden", "content", "::before")
    assert "theme=dark" in browser.current_url
    press(browser, "j")
    wait_for_row(browser, 1)
    assert "theme=dark" in browser.current_url
    assert "brackets=1" in browser.current_url
    assert "⟦" in style(browser, ".text mark.k-hidden", "content", "::before")
    find(browser, "#theme").click()
    find(browser, "#brackets").click()
    assert style(browser, "body", "backgroundColor") == light
    assert "⟦" not in style(browser, ".text mark.k-hidden", "content", "::before")


def test_dark_if_the_reader_prefers_it(browser, address):
    given = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    browser.get(address + "tales/0")
    light = style(browser, "body", "backgroundColor")
    with emulated(browser, "Emulation.setEmulatedMedia", "Emulation.setEmulatedMedia", given):
        assert style(browser, "body", "backgroundColor") != light
    assert style(browser, "body", "backgroundColor") == light


def test_tokens_on_demand(browser, address):
    browser.get(address + "tales/0")
    text = find(browser, ".block .text")
    before = text.text
    press(browser, "t")
    wait(browser, lambda: find_all(text, ".token"))
    ids = [part.text for part in find_all(text, ".token i")]
    assert len(ids) > 5
    assert all(number.isdigit() for number in ids)
    find(browser, "#tokens").click()
    wait(browser, lambda: text.text == before)


def test_a_linked_row(browser, address):
    browser.get(address + "linked/0?theme=dark")
    steps = texts(browser, ".chain .step")
    assert len(steps) == len(find_all(browser, ".block.prose")) > 3
    assert steps[0] == "first"
    measured = [step.split()[:2] for step in steps[1:] if not step.startswith("not listed")]
    assert len(measured) > 2
    for (cosine, product), meter in zip(measured, find_all(browser, ".chain meter"), strict=True):
        assert float(meter.get_attribute("value")) == pytest.approx(max(float(cosine), 0), abs=6e-4)
        assert float(product.strip("()")) == pytest.approx(float(cosine), abs=2e-3)  # the vectors have norm 1
    assert any("near-duplicate of" in line and "1.000" in line for line in texts(browser, ".chain .near"))
    assert fits_the_width(browser)
    take_picture(browser, "view-linked", 1200, 800)
    find_all(browser, ".chain .number")[-1].click()
    wait(browser, lambda: browser.current_url.endswith(f"#part-0-{len(steps) - 1}"))


def test_predictions_beside_the_reference(browser, address):
    browser.get(address + "long-model/0?theme=light")
    assert texts(browser, ".band h3")[:3] == ["reference", "long-model", "lead"]
    shared = [mark.lower() for mark in texts(browser, ".column:nth-child(2) mark.k-shared")]
    words = " ".join(shared).split()
    assert {"night", "frost", "lit", "lost", "boats", "came", "home"} <= set(words)
    assert not {"climbed", "ostra"} & set(words)  # only the prediction has them
    assert "rouge1" in find(browser, ".column:nth-child(2) .note").text
    take_picture(browser, "view-predictions", 1400, 800)


def test_nothing_in_a_hostile_text_acts(browser, address):
    browser.set_page_load_timeout(30)
    for row in range(4):
        browser.get(f"{address}hostile/{row}?theme=light")
        assert browser.title.startswith(f"{row} · hostile")
        assert find(browser, "main h2").is_displayed()
        assert fits_the_width(browser)
        assert not find_all(browser, "main script, main img, main style, main [onmouseover]")
    browser.get(address + "hostile/0?theme=light")
    assert "<script>document.title" in find(browser, ".text").text
    take_picture(browser, "view-hostile", 1000, 520)


def test_thirty_megabytes_in_a_line_are_folded(browser, address):
    browser.get(address + "hostile/4")
    assert len(browser.page_source) < 100_000
    text = find(browser, ".text")
    before = len(text.text)
    find(browser, ".more").click()
    wait(browser, lambda: len(text.text) > 2 * before)
    assert "more of" in find(browser, ".more").text
    assert fits_the_width(browser)


def test_a_phone(browser, address, whole_folder):
    with emulated(browser, *PHONE):
        for path in ("", "tales/0", "families/0", "linked/0", "long-model/0", "hostile/3", "tales/0?tokens=1"):
            browser.get(address + path)
            assert fits_the_width(browser), path
            assert find(browser, ".top h1").rect["width"] > 140, path
        assert len({column.rect["x"] for column in find_all(browser, ".column")}) == 1
        find(browser, "#next").click()
        wait_for_row(browser, 1)
        for path in ("", "tales/", "documents/?text=moss", "runs/", "lead/"):
            browser.get(whole_folder + path)
            assert fits_the_width(browser), path


def test_a_saved_page_works_by_itself(browser, folders, tmp_path):
    page = tmp_path / "page.html"
    command(View(artefact=(folders["t5"], folders["pegasus"]), save=str(page), count=2))
    browser.get(page.as_uri())
    assert len(find_all(browser, ".saved")) == 2
    press(browser, "b")
    assert "⟦" in style(browser, "mark.k-hidden", "content", "::before")
    first = browser.execute_script("return scrollY")
    press(browser, "j")
    wait(browser, lambda: browser.execute_script("return scrollY") > first)


def test_the_overview_leads_to_tables_and_runs(browser, whole_folder):
    browser.get(whole_folder + "?theme=light")
    kinds = dict(zip(texts(browser, ".graph .name"), texts(browser, ".graph .name + text"), strict=True))
    assert kinds["tales"] == "corpus, 4 rows"
    assert kinds["runs/base"] == "run, stopped"
    assert len(find_all(browser, ".graph path")) > 10
    assert fits_the_width(browser)
    take_picture(browser, "view-folder", 1200, 760)
    press(browser, "d")
    assert "theme=dark" in browser.current_url
    for name, title in (("base", "runs"), ("tales", "tales")):
        browser.get(whole_folder + "?theme=dark")
        find(browser, f".graph a[href*='/{name}/']").click()
        wait(browser, lambda title=title: browser.title == f"{title} · farspan")
        wait(browser, lambda: find(browser, "html").get_attribute("data-theme") == "dark")
    browser.back()
    wait(browser, lambda: find_all(browser, ".top nav a"))
    find(browser, ".top nav a").click()
    wait(browser, lambda: find_all(browser, ".panel"))


def test_columns_sort_and_bars_filter(browser, whole_folder):
    browser.get(whole_folder + "documents/?theme=light")
    tokens = [int(text) for text in texts(browser, ".rows tbody td:nth-child(2)")]
    assert len(tokens) == 18
    for expected in (sorted(tokens, reverse=True), sorted(tokens)):
        find(browser, ".rows th:nth-child(2) > a").click()
        wait(browser, lambda rows: [int(t) for t in texts(browser, ".rows tbody td:nth-child(2)")] == rows, expected)
    bar = find(browser, ".rows th:nth-child(4) svg a:nth-of-type(2)")
    assert bar.get_attribute("textContent").strip() == "gardens: 4"
    bar.click()
    wait(browser, lambda: "source=gardens" in browser.current_url)
    wait(browser, lambda: texts(browser, ".rows tbody td:nth-child(4)") == ["gardens"] * 4)
    browser.get(whole_folder + "tales/?theme=light")
    take_picture(browser, "view-table", 1400, 420)


def test_curves_grow_and_spikes_lead_to_rows(browser, whole_folder, runs):
    browser.get(whole_folder + "runs/?theme=light")
    assert [one.strip() for one in texts(browser, "figcaption")][:2] == ["loss", "held-out loss"]
    assert len(find_all(browser, ".panels .column:first-child polyline:not(.faint)")) == 2
    assert "lost boats came home" in find(browser, ".texts mark.k-shared:last-of-type").text
    take_picture(browser, "view-runs", 1200, 900)
    with (runs / "base" / "metrics.jsonl").open("ab") as file:
        file.write(seal_line({"step": 301, "loss": 2.6}))
    wait(browser, lambda: "301" in find(browser, ".rows tbody").text)  # without another request by the reader
    find(browser, ".panel a").click()
    wait(browser, lambda: browser.title == "base-step-205 · farspan")
    assert len(find_all(browser, ".rows tbody tr")) == 9


def test_curves_are_saved_with_their_colours(browser, runs, tmp_path):
    page = tmp_path / "runs.html"
    command(View(artefact=(str(runs / "base"), str(runs / "sentences")), save=str(page)))
    browser.get(page.as_uri())
    assert len(find_all(browser, ".panel")) == 5
    colours = {line.value_of_css_property("stroke") for line in find_all(browser, ".panel polyline:not(.faint)")}
    assert len(colours) == 2
    assert style(browser, ".panel .faint", "opacity") == "0.3"


@pytest.mark.parametrize(
    ("objective", "options", "layout", "name"),
    [
        ("ul2", {}, "source_target", "view-ul2"),
        ("fill_in_the_middle", {"append": True}, "source_target", "view-fim"),
        ("t5", {}, "stream", "view-stream"),
    ],
)
def test_rows_of_denoisers_and_streams(browser, folders, tmp_path, objective, options, layout, name):
    page, chosen = tmp_path / "page.html", {"objective": (objective,), "options": options, "layout": layout}
    command(View(artefact=(folders["tales"],), save=str(page), count=1, **chosen))
    browser.get(page.as_uri())
    assert find_all(browser, ".seen .special")
    assert bool(find_all(browser, ".seen .attended")) == (layout == "stream")
    take_picture(browser, name, 1300, 640)
