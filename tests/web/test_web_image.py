"""The image on the page Live: its values are those of the interface, and nothing of them is hidden or made up."""

import numpy as np
import pytest
from browser import pixels
from lanes import lanes
from service import until

SHAPE = (900, 1300)
# Not at a corner of a square of pixels of any size.
SPOT = (611, 347)
MASKED = [40, 60, 20, 30]  # first row, first column, rows, columns
SATURATED, INVALID, MASKED_VALUE, MISSING = 65532, 65533, 65534, 65535
COUNTS, SPOT_IMAGE, REASONS = range(3)


@pytest.fixture(scope="module")
def shown(serve_images):
    """A service with three images: counts, one bright pixel, and pixels without a count."""
    counts = np.random.default_rng(5).poisson(8, SHAPE).astype("uint16")
    spot = np.ones(SHAPE, "uint16")
    spot[SPOT[1], SPOT[0]] = 5000
    reasons = counts.copy()
    reasons[400, 600:604] = MISSING, MASKED_VALUE, INVALID, SATURATED
    return serve_images([counts, spot, reasons], extra=f"[transform]\nmask_rectangle = {MASKED}")


def is_grey(colour):
    return colour[0] == colour[1] == colour[2]


@pytest.mark.parametrize("renderer", lanes(["webgl"], slow=["2d"]))
def test_the_values_are_those_of_the_interface(shown, open_tab, renderer):
    expected = pixels(shown, COUNTS)
    tab = open_tab(shown, query=f"renderer={renderer}")
    tab.shows_image(REASONS)
    assert tab.hook("__konkordia.renderer") == renderer
    random = np.random.default_rng(3)
    for scale in (1, 2.5, 40):
        x, y = int(random.integers(200, 1100)), int(random.integers(200, 700))
        left, top, columns, rows = tab.open_at(COUNTS, x, y, scale)["region"]
        for _ in range(25):
            column, row = int(random.integers(left, left + columns)), int(random.integers(top, top + rows))
            assert tab.value(column, row) == {"kind": "number", "value": int(expected[row, column])}, (scale, column, row)
        # Some columns would be the same everywhere if nothing was drawn.
        assert len(tab.colours(x - 2, y - 2, 4, 4)) > 2, scale


@pytest.mark.parametrize("renderer", lanes(["2d"], slow=["webgl"]))
def test_each_pixel_has_the_colour_of_its_value(shown, open_tab, renderer):
    expected = pixels(shown, COUNTS)
    tab = open_tab(shown, query=f"renderer={renderer}")
    tab.shows_image(REASONS)
    for scale in (1, 3, 7.3):
        tab.open_at(COUNTS, 650, 450, scale, contrast="0,20", invert=0, map="greys")
        for x, y in [(650, 450), (651, 450), (650, 451), (640, 444), (655, 458)]:
            place = round(min(1, expected[y, x] / 20) * 1023)
            assert tab.colour(x, y) == (round(place / 1023 * 255),) * 3, (scale, x, y)


@pytest.mark.parametrize("renderer", lanes(["2d"], slow=["webgl"]))
def test_a_spot_of_one_pixel_is_seen_at_every_zoom(shown, open_tab, renderer):
    tab = open_tab(shown, query=f"renderer={renderer}")
    tab.shows_image(REASONS)
    for scale in (0.08, 0.3, 0.5, 0.71, 0.99, 1, 1.4, 11):
        tab.open_at(SPOT_IMAGE, SPOT[0] + 4, SPOT[1] + 3, scale, contrast="0,5000", invert=0, map="greys")
        assert tab.colour(*SPOT) == (255, 255, 255), scale
        if scale >= 1:
            around = {tab.colour(SPOT[0] + dx, SPOT[1] + dy) for dx, dy in [(-1, 0), (1, 0), (0, -1), (0, 1)]}
            assert around == {(0, 0, 0)}, (scale, around)


@pytest.mark.parametrize("renderer", lanes(["webgl"], slow=["2d"]))
def test_a_pixel_without_a_count_never_looks_like_one(shown, open_tab, renderer):
    tab = open_tab(shown, query=f"renderer={renderer}")
    tab.shows_image(REASONS)
    row, column, rows, columns = MASKED
    for scale in (0.2, 1, 4):
        tab.open_at(COUNTS, column + columns // 2, row + rows // 2, scale)
        inside = tab.colours(column + columns // 2 - 2, row + rows // 2 - 2, 5, 5)
        assert len(inside) == 1 and not is_grey(next(iter(inside))), (scale, inside)
    assert tab.value(column + 5, row + 5) == {"kind": "masked"}
    tab.open_at(REASONS, 602, 400, 20)
    kinds = [tab.value(600 + n, 400)["kind"] for n in range(4)]
    assert kinds == ["missing", "masked", "invalid", "saturated"]
    colours = [tab.colour(600 + n, 400) for n in range(4)]
    assert len(set(colours)) == 4 and not any(is_grey(colour) for colour in colours), colours


def test_the_colours_of_no_map_are_those_of_pixels_without_a_count(shown, open_tab):
    tab = open_tab(shown)
    tab.shows_image(REASONS)
    tab.open_at(REASONS, 602, 400, 10)
    special = {tab.colour(600 + n, 400) for n in range(4)}
    for name in ["greys", "viridis", "inferno", "cividis", "heat"]:
        tab.open_at(REASONS, 602, 400, 10, map=name, invert=0, contrast="0,20")
        assert tab.colours(600, 400, 4, 1) == special, name
        assert not tab.colours(608, 403, 4, 3) & special, name


def test_the_pointer_reads_the_value_below_it(shown, open_tab):
    expected = pixels(shown, COUNTS)
    tab = open_tab(shown)
    tab.shows_image(REASONS)
    tab.open_at(COUNTS, 650, 450, 10)
    box = tab.page.locator(".image-overlay").bounding_box()
    middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    for dx, dy in [(0, 0), (-20, 3), (7, -11)]:
        # 10 screen pixels each; half of one further is its middle.
        tab.page.mouse.move(middle[0] + 10 * dx + 5, middle[1] + 10 * dy + 5)
        x, y = 650 + dx, 450 + dy
        tab.has(".readout-place", f"x {x} y {y}")
        assert tab.text(".readout-value") == str(expected[y, x])


def test_the_pointer_says_why_a_pixel_has_no_count(shown, open_tab):
    tab = open_tab(shown)
    tab.shows_image(REASONS)
    tab.open_at(REASONS, 602, 400, 30)
    box = tab.page.locator(".image-overlay").bounding_box()
    for n, words in enumerate(["missing", "masked", "not valid", "saturated"]):
        tab.page.mouse.move(box["x"] + box["width"] / 2 + 30 * (n - 2) + 15, box["y"] + box["height"] / 2 + 15)
        tab.has(".readout-value", words)
    row, column, rows, columns = MASKED
    tab.open_at(COUNTS, column + columns // 2, row + rows // 2, 10)
    tab.page.mouse.move(box["x"] + box["width"] / 2 + 5, box["y"] + box["height"] / 2 + 5)
    tab.has(".readout-value", "masked: mask_rectangle of the configuration")


def test_binned_values_say_that_they_are_those_of_squares(shown, open_tab):
    tab = open_tab(shown)
    bin_side = tab.shows_image(REASONS)["bin"]
    assert bin_side > 1
    tab.page.locator(".image-overlay").hover()
    tab.has(".readout-value", f"largest of {bin_side} × {bin_side}")


def test_the_contrast_is_kept_until_somebody_asks_for_another_one(shown, open_tab):
    tab = open_tab(shown)
    levels = tab.shows_image(REASONS)["levels"]
    low, high = (tab.page.get_by_label(name).and_(tab.page.locator("[type=number]")) for name in ("Lowest value", "Highest value"))
    read = lambda: [float(low.input_value()), float(high.input_value())]
    until(lambda: read() == levels, f"the contrast {levels} of the first frame")
    tab.press("ArrowLeft")
    tab.shows_image(SPOT_IMAGE)
    assert read() == levels
    high.fill("4321")
    high.press("Enter")
    tab.press("Escape")
    tab.page.locator(".image-overlay").click()
    tab.press("ArrowLeft")
    frame = tab.shows_image(COUNTS)
    assert read() == [levels[0], 4321]
    tab.button("Auto").click()
    until(lambda: read() == frame["levels"], "Auto takes the levels of the frame")


def test_dragging_moves_the_image_and_the_wheel_zooms_at_the_pointer(shown, open_tab):
    tab = open_tab(shown)
    tab.shows_image(REASONS)
    tab.open_at(COUNTS, 650, 450, 10)
    box = tab.page.locator(".image-overlay").bounding_box()
    x, y = box["x"] + box["width"] / 2 + 5, box["y"] + box["height"] / 2 + 5
    tab.page.mouse.move(x, y)
    tab.has(".readout-place", "x 650 y 450")
    tab.page.mouse.wheel(0, -300)
    until(lambda: tab.frame()["region"][2] < 70, "a smaller part is shown")
    tab.has(".readout-place", "x 650 y 450")
    tab.page.mouse.down()
    tab.page.mouse.move(x + 60, y + 30, steps=3)
    tab.page.mouse.up()
    tab.has(".readout-place", "x 650 y 450")
    tab.page.mouse.move(x, y)
    until(lambda: tab.text(".readout-place") != "x 650 y 450", "another pixel is at the old place")


def test_all_pixels_can_be_saved(shown, open_tab):
    tab = open_tab(shown)
    tab.shows_image(REASONS)
    tab.page.get_by_text("Save", exact=False).first.click()
    with tab.page.expect_download() as waited:
        tab.page.get_by_role("button", name="npy: all pixels").click()
    assert (np.load(waited.value.path()) == pixels(shown, REASONS)).all()
    tab.page.get_by_role("tab", name="Spots").click()
    tab.page.get_by_text("hit rate is not known").wait_for(state="detached")
    tab.page.get_by_role("tabpanel").get_by_text("Spots", exact=False).first.wait_for()
