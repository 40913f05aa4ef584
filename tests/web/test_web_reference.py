"""An image beside another one: it stays, both are seen alike, and the line below says by how much they differ."""

import numpy as np
import pytest
from browser import pixels
from service import until
from streams import Stins

SHAPE = (300, 400)
LARGE = (2100, 2100)


@pytest.fixture(scope="module")
def shown(serve_images):
    images = [np.random.default_rng(n).poisson(9, SHAPE).astype("uint16") for n in range(6)]
    images[1][50:60] = 65534
    return serve_images(images)


def reference(tab):
    return tab.hook("__konkordia.reference()")


def has_reference(tab, image):
    return until(lambda: (found := reference(tab)) and found["image"] == image and found, f"image {image} is the reference")


def test_the_reference_stays_and_the_difference_is_that_of_the_pixels(shown, open_tab):
    tab = open_tab(shown)
    tab.shows_image(5)
    tab.press("g", "2", "Enter")
    tab.shows_image(2)
    tab.press("k")
    found = has_reference(tab, 2)
    assert found["bin"] == 1 and found["region"] == [0, 0, 400, 300]
    tab.has(".pane-name", "Reference: image 2 · run 1")
    assert tab.page.locator(".image-frame").count() == 2
    tab.press("ArrowRight")
    tab.shows_image(3)
    tab.open_at(3, 200, 150, 12)
    before, now = pixels(shown, 2).astype(int), pixels(shown, 3).astype(int)
    assert reference(tab)["image"] == 2
    assert tab.hook("__konkordia.referenceValue(200, 150)") == {"kind": "number", "value": int(before[150, 200])}
    box = tab.page.locator(".image-overlay").last.bounding_box()
    middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    for dx, dy in [(0, 0), (3, -2), (-4, 5)]:
        tab.page.mouse.move(middle[0] + 12 * dx + 6, middle[1] + 12 * dy + 6)
        x, y = 200 + dx, 150 + dy
        tab.has(".readout-place", f"x {x} y {y}")
        difference = now[y, x] - before[y, x]
        text = "0" if difference == 0 else f"{difference:+d}".replace("-", "−")
        tab.has(".readout-reference", f"reference {before[y, x]}, difference {text}")
    # The pointer may as well be over the reference.
    left = tab.page.locator(".image-overlay").first.bounding_box()
    tab.page.mouse.move(left["x"] + left["width"] / 2 + 6, left["y"] + left["height"] / 2 + 6)
    tab.has(".readout-place", "x 200 y 150")


def test_both_have_the_same_view_and_keys_and_buttons_end_it(shown, open_tab):
    tab = open_tab(shown)
    tab.shows_image(5)
    tab.press("k")
    has_reference(tab, 5)
    tab.press("ArrowLeft")
    tab.shows_image(4)
    colours = lambda n: tab.page.evaluate(
        f"""() => {{
            const canvas = document.querySelectorAll(".image-canvas")[{n}], copy = document.createElement("canvas");
            copy.width = canvas.width; copy.height = canvas.height;
            const context = copy.getContext("2d");
            context.drawImage(canvas, 0, 0);
            return [...context.getImageData(canvas.width >> 1, canvas.height >> 1, 1, 1).data];
        }}"""
    )
    tab.open_at(4, 40, 30, 40, contrast="0,20", invert=0, map="viridis")
    # Both have one pixel in the middle: of the reference, and of the image.
    for n, image in enumerate([5, 4]):
        value = min(20, int(pixels(shown, image)[30, 40]))
        same = [x for x in range(38, 43) if min(20, int(pixels(shown, image)[30, x])) == value]
        assert same and colours(n)[3] == 255
    box = tab.page.locator(".image-overlay").first.bounding_box()
    tab.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    tab.page.mouse.wheel(0, -300)
    until(lambda: tab.frame()["region"][2] < 12, "zooming the reference zooms the image")
    tab.press("x")
    until(lambda: reference(tab) is None, "the comparison is over")
    assert tab.page.locator(".image-frame").count() == 1
    tab.button("Reference").click()
    has_reference(tab, 4)
    tab.button("End comparison").click()
    until(lambda: reference(tab) is None, "the comparison is over")


def test_a_pixel_without_a_count_has_no_difference(shown, open_tab):
    tab = open_tab(shown)
    tab.shows_image(5)
    tab.press("g", "1", "Enter")
    tab.shows_image(1)
    tab.press("k")
    has_reference(tab, 1)
    tab.press("ArrowRight")
    tab.shows_image(2)
    tab.open_at(2, 200, 55, 12)
    box = tab.page.locator(".image-overlay").last.bounding_box()
    tab.page.mouse.move(box["x"] + box["width"] / 2 + 6, box["y"] + box["height"] / 2 + 6)
    tab.has(".readout-reference", "reference masked, difference –")


def test_an_image_of_a_file_can_be_the_reference(shown, open_tab):
    master = shown.status()["file"]
    tab = open_tab(shown, f"live?file={master}&image=3")
    tab.shows(lambda frame: frame["file"] and frame["image"] == 3, "image 3 of the file")
    tab.press("k")
    has_reference(tab, 3)
    tab.has(".pane-name", "image 3 · s_000001_master.h5")
    tab.button("Back to live").click()
    tab.shows_image(5, run=1)
    assert reference(tab)["image"] == 3
    tab.button("Reference").click()


def test_a_large_reference_says_that_its_dots_are_those_of_squares(serve, open_tab):
    service = serve()
    service.send(*Stins().series([np.ones(LARGE, "uint16"), np.full(LARGE, 2, "uint16")]))
    service.taken(1)
    tab = open_tab(service)
    tab.shows_image(1)
    tab.press("k")
    assert has_reference(tab, 1)["bin"] == 2
    tab.has(".pane-name", "each dot the largest of 2 × 2 pixels")


def test_while_images_come_the_reference_stays_and_they_go_on(serve, open_tab):
    service, stins = serve(extra="[service]\nring_images = 2"), Stins()
    service.send(stins.start(), *(stins.image(n, np.full((24, 40), n, "uint16")) for n in range(3)))
    tab = open_tab(service)
    tab.shows_image(2)
    tab.press("k")
    has_reference(tab, 2)
    service.send(*(stins.image(n, np.full((24, 40), n, "uint16")) for n in range(3, 9)))
    tab.shows_image(8)
    assert tab.hook("__konkordia.referenceValue(3, 3)") == {"kind": "number", "value": 2}
    service.send(stins.end())
    tab.state("Idle")
