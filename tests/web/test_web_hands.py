"""What hands do on the page Live, by mouse and by keys that need a geometry or a hit; and presets of the form."""

import numpy as np
import pytest
from browser import PAGES
from service import until

SHAPE = (600, 800)
IMAGES, HITS = 12, [3, 7]
BEAM = (310.0, 222.0)
FACTS = {
    "photon_energy": 12400.0,
    "detector_distance": 0.12,
    "beam_center_x": BEAM[0],
    "beam_center_y": BEAM[1],
    "x_pixel_size": 75e-6,
    "y_pixel_size": 75e-6,
}
RECIPE = """
[spots]
method = "peakfinder8"
threshold = 30.0
snr_min = 5.0
[hits]
spots_min = 10
"""


def images():
    """Images of which the hits have spots; each has a maximum of its own."""
    made = []
    for number in range(IMAGES):
        random = np.random.default_rng(number)
        image = random.poisson(5, SHAPE).astype("uint16")
        for _ in range(30 if number in HITS else 0):
            column, row = random.integers(10, SHAPE[1] - 10), random.integers(10, SHAPE[0] - 10)
            image[row - 1 : row + 2, column - 1 : column + 2] += np.array([[9, 90, 9], [90, 400, 90], [9, 90, 9]], "uint16")
        image[100, 100] = 1000 + 10 * number
        image[5, 5] = 65534
        made.append(image)
    return made


@pytest.fixture(scope="module")
def shown(serve_images, tmp_path_factory):
    recipe = tmp_path_factory.mktemp("hands") / "recipe.toml"
    recipe.write_text(RECIPE)
    return serve_images(images(), FACTS, extra=f'[analysis]\nrecipe = "{recipe}"')


@pytest.fixture
def tab(shown, open_tab):
    tab = open_tab(shown)
    tab.shows_image(IMAGES - 1)
    return tab


def middle(tab):
    box = tab.page.locator(".image-overlay").bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def drag(tab, begin, end, button="left", key=None):
    if key:
        tab.page.keyboard.down(key)
    tab.page.mouse.move(*begin)
    tab.page.mouse.down(button=button)
    tab.page.mouse.move(*end, steps=4)
    tab.page.mouse.up(button=button)
    if key:
        tab.page.keyboard.up(key)


def contrast(tab):
    fields = tab.page.locator("input[type=number]")
    return [float(fields.nth(n).input_value() or "nan") for n in range(2)]


def test_h_shows_the_newest_hit_and_then_the_newest_image_again(tab):
    tab.press("h")
    tab.shows_image(HITS[-1])
    tab.has(".readout-image", f"image {HITS[-1]}")
    assert tab.button("Hits").get_attribute("aria-pressed") == "true"
    tab.press("h")
    tab.shows_image(IMAGES - 1)
    tab.button("Hits").click()
    tab.shows_image(HITS[-1])


def test_m_gives_pixels_without_a_number_one_quiet_colour_and_back(tab):
    tab.open_at(IMAGES - 1, 5, 5, 20)
    marked = tab.colour(5, 5)
    tab.page.get_by_text("Layers ▾").click()
    box = tab.page.get_by_label("Masked, missing and invalid pixels in colours of their own, and the drawn mask (m)")
    assert box.is_checked()
    tab.press("m")
    until(lambda: not box.is_checked(), "the layer is off")
    assert tab.colour(5, 5) not in tab.colours(6, 6, 4, 4)
    tab.press("m")
    until(lambda: box.is_checked() and tab.colour(5, 5) == marked, "the layer is on again")


def test_a_takes_the_contrast_of_this_image_once(tab):
    before = contrast(tab)
    tab.page.locator("input[type=number]").nth(1).fill("77")
    tab.press("Enter", "Tab")
    until(lambda: contrast(tab)[1] == 77, "what was written")
    tab.page.locator(".image-overlay").click()
    tab.press("a")
    until(lambda: contrast(tab) == before, "the contrast of the image")


def test_z_puts_the_beam_centre_into_the_middle(tab):
    tab.press("1", "z")
    tab.shows(lambda frame: frame["bin"] == 1, "single pixels")
    tab.page.mouse.move(*middle(tab))
    until(lambda: (words := tab.text(".readout-place").split()) and abs(int(words[1]) - BEAM[0]) <= 2 and abs(int(words[3]) - BEAM[1]) <= 2, "the beam centre", timeout=10)
    assert float(tab.text(".readout").split("2θ")[1].split("°")[0]) < 0.1
    tab.page.get_by_text("View ▾").click()
    tab.button("Fit").click()
    tab.shows(lambda frame: frame["region"] == [0, 0, SHAPE[1], SHAPE[0]], "all of the image")
    tab.button("Beam").click()
    tab.page.mouse.move(*middle(tab))
    until(lambda: abs(int(tab.text(".readout-place").split()[1]) - BEAM[0]) <= 3, "the button does the same", timeout=10)


@pytest.mark.parametrize("key", ["Shift", "Control"])
def test_a_box_that_is_drawn_fills_the_canvas(tab, key):
    x, y = middle(tab)
    tab.page.mouse.move(x - 60, y - 40)
    first = list(map(int, tab.text(".readout-place").split()[1::2]))
    tab.page.mouse.move(x + 60, y + 40)
    last = list(map(int, tab.text(".readout-place").split()[1::2]))
    drag(tab, (x - 60, y - 40), (x + 60, y + 40), key=key)
    frame = tab.shows(lambda frame: frame["bin"] == 1 and frame["region"][2] < 400, "a part")
    left, top, columns, rows = frame["region"]
    assert left <= first[0] and top <= first[1] and left + columns > last[0] and top + rows > last[1]
    # What was in the middle of the box is in the middle of the canvas.
    tab.page.mouse.move(x, y)
    until(lambda: abs(int(tab.text(".readout-place").split()[1]) - (first[0] + last[0]) / 2) <= 3, "the middle stays")
    # A box that is only a point changes nothing.
    drag(tab, (x, y), (x + 1, y + 1), key=key)
    tab.page.wait_for_timeout(200)
    assert tab.frame()["region"] == frame["region"]
    tab.page.mouse.dblclick(x, y)
    tab.shows(lambda frame: frame["region"] == [0, 0, SHAPE[1], SHAPE[0]], "a double click shows all")


def test_the_right_button_changes_the_contrast_and_opens_no_menu(tab):
    x, y = middle(tab)
    low, high = contrast(tab)
    region = tab.frame()["region"]
    drag(tab, (x, y), (x + 100, y), button="right")
    wider = until(lambda: (now := contrast(tab)) != [low, high] and now, "another contrast")
    assert wider[1] - wider[0] > 1.5 * (high - low) and abs(sum(wider) - low - high) < 0.05 * (wider[1] - wider[0])
    drag(tab, (x, y), (x, y + 60), button="right")
    moved = until(lambda: (now := contrast(tab)) != wider and now, "another middle")
    assert moved[0] > wider[0] and moved[1] > wider[1]
    assert tab.frame()["region"] == region, "the image does not move with it"


def test_a_click_in_the_plot_shows_that_image(tab):
    tab.page.get_by_label("Plot of").select_option("max_value")
    plot = tab.page.locator(".plot-canvas .u-over")
    tab.has(".strip-summary", "max value")
    box = until(lambda: plot.count() and plot.bounding_box(), "the plot is there")
    for number in (4, 9):
        # The axis goes from the first to the last image.
        tab.page.mouse.move(box["x"] + box["width"] * (number + 0.1) / (IMAGES - 1), box["y"] + box["height"] / 2)
        tab.page.mouse.click(box["x"] + box["width"] * number / (IMAGES - 1), box["y"] + box["height"] / 2)
        frame = tab.shows_image(number)
        assert frame["results"]["max_value"] == 1000 + 10 * number
    tab.has(".toolbar-group", "▶ Live")
    # The same from the table, by keys.
    tab.button("Table").click()
    tab.page.locator(".plot-table").get_by_role("button", name="6", exact=True).press("Enter")
    tab.shows_image(6)


def test_presets_are_kept_by_the_browser_and_come_back_as_they_were(serve, open_tab):
    service = serve()
    tab = open_tab(service, "acquire")
    tab.state("Idle")
    write = {"Prefix of the files": "lyso", "Sample": "lysozyme <b>", "Photon energy (keV)": "12.4"}
    for label, text in write.items():
        tab.page.get_by_label(label, exact=True).fill(text)
    row = tab.page.locator(".preset-row")
    assert row.get_by_role("button", name="Save").is_disabled(), "without a name"
    row.get_by_label("Name").fill("my crystals")
    row.get_by_role("button", name="Save").click()
    tab.page.reload()
    tab.state("Idle")
    # What was written is still there, so it is deleted.
    fields = lambda: {label: tab.page.get_by_label(label, exact=True).input_value() for label in write}
    for label in write:
        tab.page.get_by_label(label, exact=True).fill("")
    row.get_by_label("Presets").select_option("my crystals")
    until(lambda: fields() == write, "the form is as it was kept")
    row.get_by_role("button", name="Delete").click()
    until(lambda: row.get_by_label("Presets").locator("option").count() == 1, "it is deleted")
    assert fields() == write
    other = open_tab(service, "acquire")
    other.state("Idle")
    assert other.page.locator(".preset-row option").all_inner_texts() == ["none yet"]


def test_what_an_older_page_kept_spoils_nothing(serve, open_tab):
    tab = open_tab(serve(), "acquire")
    tab.state("Idle")
    for kept in ["{", "[]", "null", "7", '{"a": null, "b": {"images": 5, "metadata": "x"}}']:
        tab.page.evaluate("kept => localStorage.setItem('konkordia.presets', kept)", kept)
        tab.page.reload()
        tab.state("Idle")
        tab.show(PAGES[1])
    tab.page.locator(".preset-row").get_by_label("Presets").select_option("b")
    assert tab.page.get_by_label("Images", exact=True).input_value() == ""
