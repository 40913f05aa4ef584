"""Images of finished files on the page Live: each image by hand, all of them by themselves, and back to the runs."""

import time
import urllib.parse

import numpy as np
import pytest
from service import until
from streams import SeriesFile, Stins, StreamService

SHAPE = (120, 160)
IMAGES, LOST = 30, 7


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """A service that keeps 4 images, and the file of its first run with 30 of them, of which one is lost."""
    service = StreamService(tmp_path_factory.mktemp("playback"), extra="[service]\nring_images = 4")
    stins = Stins()
    images = [np.random.default_rng(n).poisson(9, SHAPE).astype("uint16") for n in range(IMAGES)]
    service.send(stins.start())
    service.send(*(stins.image(n, image) for n, image in enumerate(images) if n != LOST))
    service.send(stins.end())
    service.master = service.taken(1, severity="warning")["file"]
    service.stored = SeriesFile(service.master, check=None).images
    service.send(*stins.series([np.full(SHAPE, 3, "uint16")] * 2))
    service.taken(2)
    yield service
    service.close()


@pytest.fixture
def tab(shown, open_tab):
    tab = open_tab(shown, f"live?file={urllib.parse.quote(shown.master)}&image=12")
    shows(tab, 12, shown)
    return tab


def shows(tab, image, shown):
    frame = tab.shows(lambda frame: frame["image"] == image and frame["file"] is not None, f"image {image} of the file")
    assert frame["file"].endswith(shown.master.rsplit("/", 1)[1]) and frame["run"] is None
    return frame


def test_an_image_of_a_file_has_the_values_of_the_file(shown, tab):
    tab.has(".file-name", shown.master.rsplit("/", 1)[1])
    tab.has(".file-place", f"image 12 of {IMAGES}")
    tab.press("1")
    tab.shows(lambda frame: frame["bin"] == 1, "single pixels")
    for x, y in [(0, 0), (80, 60), (159, 119)]:
        assert tab.value(x, y) == {"kind": "number", "value": int(shown.stored[12, y, x])}
    assert tab.page.locator(".live-strip").count() == 0
    tab.has(".readout-image", "image 12")


def test_the_keys_go_through_the_file(shown, tab):
    for key, image in [("ArrowRight", 13), ("Home", 0), ("ArrowLeft", 0), ("End", IMAGES - 1), ("ArrowRight", IMAGES - 1), ("ArrowLeft", IMAGES - 2)]:
        tab.press(key)
        shows(tab, image, shown)
    tab.press("g", "5", "Enter")
    shows(tab, 5, shown)
    tab.page.get_by_role("slider", name="Image of the file").fill("20")
    shows(tab, 20, shown)
    tab.press("h")
    shows(tab, 20, shown)


def test_it_plays_to_the_end_and_stops_there(shown, tab):
    tab.page.get_by_label("Images in a second").select_option("10")
    tab.press("g", "1", "5", "Enter")
    shows(tab, 15, shown)
    tab.page.locator(".image-overlay").click()
    began = time.monotonic()
    tab.press("Space")
    tab.button("❚❚ Pause").wait_for()
    shows(tab, IMAGES - 1, shown)
    assert time.monotonic() - began > 1.3
    tab.button("▶ Play").wait_for()
    # From the end it begins again; a key of the images stops it.
    tab.press("Space")
    tab.shows(lambda frame: frame["image"] < 5, "the first images")
    tab.press("ArrowRight")
    tab.button("▶ Play").wait_for()


def test_a_lost_image_is_said_to_be_lost(shown, tab):
    tab.press("g", str(LOST), "Enter")
    tab.has(".image-note", "lost")
    tab.has(".file-place", f"image {LOST} of {IMAGES}")
    tab.press("ArrowRight")
    shows(tab, LOST + 1, shown)
    until(lambda: tab.page.locator(".image-note").count() == 0, "the next one is not lost")
    # Playing goes past it.
    tab.press("g", str(LOST - 1), "Enter")
    shows(tab, LOST - 1, shown)
    tab.page.locator(".image-overlay").click()
    tab.press("Space")
    shows(tab, LOST + 2, shown)
    # A sum leaves it out.
    tab.press("Space", "g", str(LOST + 1), "Enter", "+")
    tab.shows(lambda frame: frame["stack"] == {"by": "sum", "images": 4, "first": LOST - 3}, "a sum without the lost image")
    tab.has(".readout-image", f"sum of images {LOST - 3} to {LOST + 1} (4 of them)")


def test_sums_are_made_of_images_of_the_file(shown, tab):
    tab.press("+")
    tab.shows(lambda frame: frame["stack"] == {"by": "sum", "images": 5, "first": 8}, "a sum of the file")
    tab.has(".readout-image", "sum of images 8 to 12")
    expected = shown.stored[8:13].astype(int).sum(axis=0)
    tab.press("1")
    until(lambda: tab.frame()["bin"] == 1 and tab.value(80, 60)["value"] == expected[60, 80], "the sum of the pixels")


def test_back_to_live_shows_the_newest_image(shown, tab):
    tab.button("Back to live").click()
    tab.shows_image(1, run=2)
    assert tab.page.locator(".file-bar").count() == 0 and tab.page.locator(".live-strip").count() == 1
    assert tab.page.evaluate("location.hash") == "#/live"


def test_all_pixels_of_an_image_of_a_file_can_be_saved(shown, tab):
    tab.page.get_by_text("Save ▾").click()
    with tab.page.expect_download() as waited:
        tab.button("npy: all pixels").click()
    assert (np.load(waited.value.path()) == shown.stored[12]).all()
    assert waited.value.suggested_filename == "s_000001_image12.npy"


def test_a_click_in_a_plot_shows_the_image_or_offers_to_open_it_from_the_file(bench, open_tab):
    raster = {"raster_columns": 6, "raster_is_snake": True}
    service = bench.serve(run={"images": 18}, image_metadata=raster, service={"ring_images": 4})
    service.command("start")
    bench.send(18)
    service.wait()
    tab = open_tab(service)
    tab.shows_image(17)
    tab.page.get_by_label("Plot of").select_option("sum_value")
    tab.button("Table").click()
    row = lambda image: tab.page.locator(".strip-plot").get_by_role("button", name=str(image), exact=True)
    row(15).click()
    tab.shows_image(15)
    row(2).click()
    tab.has(".strip-notice", "Image 2 is not kept any more: it is in run_000001_master.h5.")
    tab.button("Open it from the file").click()
    tab.shows(lambda frame: frame["image"] == 2 and frame["file"], "image 2 of the file")
    tab.button("Back to live").click()
    # The third row of the map is the images 12 to 17, the second one goes backwards.
    tab.page.get_by_label("against").select_option("raster")
    box = tab.page.locator(".raster-map").bounding_box()
    place = lambda row, column: (box["x"] + box["width"] * (column + 0.5) / 6, box["y"] + box["height"] * (row + 0.5) / 3)
    tab.page.mouse.move(*place(1, 0))
    tab.has(".raster-words", "row 1, column 0, image 11")
    tab.page.mouse.click(*place(2, 4))
    tab.shows_image(16)
    tab.page.mouse.click(*place(1, 5))
    tab.has(".strip-notice", "Image 6 is not kept any more")


def test_a_file_that_is_not_there_is_said_to_be_not_there(shown, open_tab):
    tab = open_tab(shown, "live?file=/nowhere/x_master.h5&image=3")
    tab.may_be_refused = True
    tab.has(".file-bar", "The file cannot be read:")
    tab.button("Back to live").click()
    tab.shows_image(1, run=2)
