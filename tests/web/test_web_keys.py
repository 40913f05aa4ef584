"""Keys do what the list of keys says, and everything can be done without a mouse."""

import numpy as np
import pytest
from browser import PAGES
from service import until
from streams import Stins

IMAGES = 6


@pytest.fixture(scope="module")
def shown(serve_images):
    return serve_images([np.random.default_rng(n).poisson(5, (700, 900)).astype("uint16") for n in range(IMAGES)])


@pytest.fixture
def tab(shown, open_tab):
    tab = open_tab(shown)
    tab.shows_image(IMAGES - 1)
    until(lambda: tab.page.get_by_label("Oldest image that is kept (Home)").is_enabled(), "the images that are kept are known")
    return tab


def pressed(tab, name):
    return tab.button(name).get_attribute("aria-pressed") == "true"


def test_arrows_home_and_end_go_through_the_images(tab):
    for key, image in [("ArrowLeft", 4), ("ArrowLeft", 3), ("ArrowRight", 4), ("Home", 0), ("ArrowLeft", 0), ("End", 5), ("ArrowRight", 5)]:
        tab.press(key)
        tab.shows_image(image)


def test_space_keeps_the_image_and_lets_it_go_again(serve, open_tab):
    service, stins = serve(), Stins()
    images = lambda count: [np.full((24, 40), n, "uint16") for n in range(count)]
    service.send(*stins.series(images(4)))
    service.taken(1)
    tab = open_tab(service)
    tab.shows_image(3, run=1)
    tab.press("ArrowLeft")
    tab.shows_image(2)
    tab.press("Space")
    tab.shows_image(3)
    tab.press("Space")
    tab.has(".toolbar-group", "▶ Live")
    service.send(*stins.series(images(2)))
    tab.has(".bar-message", "run 2 has ended")
    # Image 3 is not there in the new run; the one that was kept stays, with the reason.
    tab.has(".image-note", "Image 3 is still shown")
    assert (tab.frame()["run"], tab.frame()["image"]) == (1, 3)
    tab.press("Space")
    tab.shows_image(1, run=2)
    tab.has(".toolbar-group", "Freeze")


def test_g_asks_for_the_number_of_an_image(tab):
    tab.press("g", "2", "Enter")
    tab.shows_image(2)


def test_0_and_1_zoom_to_all_and_to_single_pixels(tab):
    whole = tab.frame()
    assert whole["region"] == [0, 0, 900, 700] and whole["bin"] > 1
    tab.press("1")
    tab.shows(lambda frame: frame["bin"] == 1, "single pixels")
    tab.press("0")
    tab.shows(lambda frame: frame["region"] == [0, 0, 900, 700] and frame["bin"] == whole["bin"], "all of the image")


def test_shift_and_arrows_move_the_image(tab):
    tab.press("1")
    before = tab.shows(lambda frame: frame["bin"] == 1, "single pixels")["region"]
    tab.press("Shift+ArrowDown")
    tab.shows(lambda frame: frame["region"][1] + frame["region"][3] > before[1] + before[3], "what lies further down")


def test_i_c_and_l_change_the_colours(tab):
    colours = lambda: tab.page.locator("select", has_text="viridis").input_value()
    before = (pressed(tab, "Invert"), colours(), pressed(tab, "Log"))
    assert before == (True, "greys", False)
    one = tab.colour(450, 350)
    tab.press("i")
    until(lambda: not pressed(tab, "Invert"), "not inverted")
    inverted = tab.colour(450, 350)
    assert inverted == tuple(255 - part for part in one)
    tab.press("l")
    until(lambda: pressed(tab, "Log"), "a logarithmic scale")
    tab.press("c")
    until(lambda: colours() == "viridis", "the next colours")
    assert len(set(tab.colour(450, 350))) > 1


def test_letters_turn_layers_on_and_off(tab):
    tab.page.get_by_text("Layers ▾").click()
    names = {"s": "Spots", "r": "Resolution rings", "e": "Ice rings", "b": "Beam centre"}
    is_on = lambda key: tab.page.get_by_label(names[key]).is_checked()
    for key in names:
        before = is_on(key)
        tab.press(key)
        until(lambda key=key, before=before: is_on(key) != before, f"{key} changes {names[key]}")


def test_the_question_mark_shows_the_keys_and_escape_closes_them(tab):
    tab.press("?")
    tab.has("dialog[open]", "one pixel of the image for each dot of the screen")
    # Keys of the image mean nothing while the dialog is open.
    tab.press("ArrowLeft", "Escape")
    until(lambda: tab.page.locator("dialog").count() == 0, "the dialog is closed")
    assert tab.frame()["image"] == IMAGES - 1


def test_keys_are_letters_while_somebody_writes(tab):
    tab.show("acquire")
    field = tab.page.get_by_label("Sample", exact=True)
    field.press_sequentially("lic? 0")
    assert field.input_value() == "lic? 0"


FORGET_REACHED = "() => { for (const one of document.querySelectorAll('[data-reached]')) delete one.dataset.reached; }"

FOCUSED = """() => {
    const one = document.activeElement;
    if (!one || one === document.body) return null;
    const style = getComputedStyle(one), box = one.getBoundingClientRect();
    const name = one.getAttribute("aria-label") || one.labels?.[0]?.innerText || one.title || one.innerText || one.id;
    const isSeen = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0 && box.width > 0;
    one.dataset.reached = "yes";
    return { name: `${one.tagName} ${name}`.slice(0, 60), isSeen };
}"""

UNREACHED = """() => [...document.querySelectorAll("a[href], button, input, select, summary, textarea")]
    .filter((one) => !one.disabled && one.checkVisibility({ visibilityProperty: true }) && !one.dataset.reached && one.tabIndex >= 0)
    .map((one) => one.outerHTML.slice(0, 100))"""


@pytest.mark.parametrize("name", PAGES)
def test_tab_reaches_every_control_and_the_focus_is_seen(shown, open_tab, name):
    tab = open_tab(shown, name)
    tab.state("Idle")
    if name == "live":
        tab.shows_image(IMAGES - 1)
        until(lambda: tab.page.get_by_label("Oldest image that is kept (Home)").is_enabled(), "the images that are kept are known")
    if name == "files":
        tab.page.locator(".file-picture").wait_for()
    unseen, places = [], 0
    for _ in range(120):
        tab.press("Tab")
        focused = tab.page.evaluate(FOCUSED)
        if focused is None:
            break
        places += 1
        if not focused["isSeen"]:
            unseen.append(focused["name"])
    assert places > 8 and unseen == []
    assert tab.page.evaluate(UNREACHED) == []


@pytest.mark.parametrize("name", ["live", "acquire"])
def test_tab_goes_back_the_way_that_it_came_and_into_open_menus(shown, open_tab, name):
    tab = open_tab(shown, name)
    tab.state("Idle")
    if name == "live":
        tab.shows_image(IMAGES - 1)
        for menu in ("Layers ▾", "Save ▾"):
            summary = tab.page.get_by_text(menu)
            summary.focus()
            tab.press("Enter")
            tab.press("Tab")
            assert tab.page.evaluate("Boolean(document.activeElement.closest('details[open] .menu-content'))"), menu
            tab.press("Escape")
            until(lambda: tab.page.locator("details[open]").count() == 0, "the menu is closed")
            assert tab.page.evaluate("document.activeElement.tagName") == "SUMMARY"
    ways = []
    # The first way only leads out of the page, from wherever the focus is.
    for key in ("Tab", "Tab", "Shift+Tab"):
        tab.page.evaluate(FORGET_REACHED)
        for _ in range(120):
            tab.press(key)
            focused = tab.page.evaluate(FOCUSED)
            if focused is None:
                break
            assert focused["isSeen"], focused
        ways.append(tab.page.evaluate(UNREACHED))
    assert ways[1:] == [[], []]


def test_a_run_can_be_made_with_keys_alone(bench, open_tab):
    service = bench.serve(run={"images": 5})
    tab = open_tab(service)
    tab.state("Idle")

    def reach(name):
        for _ in range(120):
            tab.press("Tab")
            focused = tab.page.evaluate(FOCUSED)
            if focused and name in focused["name"]:
                return
        raise AssertionError(f"{name} cannot be reached")

    reach("A Acquire")
    tab.press("Enter")
    tab.page.wait_for_selector("main.page.acquire")
    reach("INPUT Images")
    tab.press("Control+a", "3")
    reach("BUTTON Start")
    tab.press("Space")
    tab.state("Armed")
    assert service.status()["images_expected"] == 3
    reach("BUTTON Cancel")
    tab.press("Enter")
    tab.state("Idle")
