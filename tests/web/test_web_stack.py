"""Sums and maxima of the last images: their values, their words, and that they cost nothing where nobody asks."""

import numpy as np
import pytest
from browser import pixels
from service import until

SHAPE = (300, 400)
IMAGES, KEPT = 24, 12
BRIGHT = (123, 77)


@pytest.fixture(scope="module")
def shown(serve_images):
    """A service that keeps the last 12 of 24 images; each has its own bright pixel, and one pixel is saturated once."""
    images = [np.random.default_rng(n).poisson(3, SHAPE).astype("uint16") for n in range(IMAGES)]
    for n, image in enumerate(images):
        image[BRIGHT[1], BRIGHT[0] + n] = 1000 + n
    images[-2][5, 5] = 65532
    return serve_images(images, extra=f"[service]\nring_images = {KEPT}")


def choice(tab):
    return tab.page.get_by_label("Sum or maximum of the last images")


def is_stack(by, images):
    return lambda frame: frame["stack"] == {"by": by, "images": images, "first": IMAGES - images}


def test_the_sum_is_that_of_the_last_images_pixel_by_pixel(shown, open_tab):
    tab = open_tab(shown)
    tab.shows_image(IMAGES - 1)
    tab.open_at(IMAGES - 1, BRIGHT[0] + IMAGES, BRIGHT[1], 8)
    choice(tab).select_option("sum,5")
    tab.shows(is_stack("sum", 5), "the sum of 5 images")
    tab.has(".readout-image", f"sum of images {IMAGES - 5} to {IMAGES - 1}")
    expected = sum(pixels(shown, IMAGES - n).astype(int) for n in range(1, 6))
    for x, y in [(BRIGHT[0] + IMAGES - 1, BRIGHT[1]), (BRIGHT[0] + IMAGES - 4, BRIGHT[1]), (140, 70)]:
        assert tab.value(x, y) == {"kind": "number", "value": int(expected[y, x])}, (x, y)
    choice(tab).select_option("maximum,5")
    tab.shows(is_stack("maximum", 5), "the maximum of 5 images")
    largest = np.max([pixels(shown, IMAGES - n) for n in range(1, 6)], axis=0)
    assert tab.value(BRIGHT[0] + IMAGES - 4, BRIGHT[1])["value"] == largest[BRIGHT[1], BRIGHT[0] + IMAGES - 4] == 1000 + IMAGES - 4
    assert tab.value(140, 70)["value"] == largest[70, 140]


def test_a_pixel_that_is_saturated_once_is_saturated(shown, open_tab):
    tab = open_tab(shown, "live?image=23&view=5,5,40&stack=sum,5")
    tab.shows(is_stack("sum", 5), "the sum of 5 images")
    until(lambda: tab.value(5, 5) == {"kind": "saturated"}, "the pixel is saturated")


def test_plus_and_minus_choose_how_many_and_the_link_keeps_it(shown, open_tab):
    tab = open_tab(shown, permissions=["clipboard-read", "clipboard-write"])
    tab.shows_image(IMAGES - 1)
    tab.press("+", "+")
    tab.shows(is_stack("sum", 10), "the sum of 10 images")
    assert choice(tab).input_value() == "sum,10"
    # Fewer are kept than were asked for.
    tab.press("+")
    tab.shows(is_stack("sum", KEPT), "the sum of all that are kept")
    tab.has(".readout-image", f"sum of images {IMAGES - KEPT} to {IMAGES - 1}")
    tab.press("-")
    tab.shows(is_stack("sum", 10), "the sum of 10 images")
    tab.page.get_by_text("Save ▾").click()
    tab.button("Copy link").click()
    tab.has(".menu-content", "Copied")
    link = tab.page.evaluate("navigator.clipboard.readText()")
    other = open_tab(shown)
    other.page.goto(link)
    other.shows(is_stack("sum", 10), "the sum of the link")
    other.press("-", "-")
    other.shows(lambda frame: frame["stack"] is None, "one image")
    other.has(".readout-image", f"image {IMAGES - 1} · run 1")


def test_another_number_of_images_sets_the_contrast_once(shown, open_tab):
    tab = open_tab(shown)
    levels = tab.shows_image(IMAGES - 1)["levels"]
    high = tab.page.get_by_label("Highest value").and_(tab.page.locator("[type=number]"))
    until(lambda: float(high.input_value()) == levels[1], "the contrast of one image")
    tab.press("+")
    summed = tab.shows(is_stack("sum", 5), "the sum of 5 images")["levels"]
    assert summed[1] > levels[1]
    until(lambda: float(high.input_value()) == summed[1], "the contrast of the sum")
    tab.press("ArrowLeft")
    tab.shows(lambda frame: frame["image"] == IMAGES - 2, "the image before")
    assert float(high.input_value()) == summed[1]
