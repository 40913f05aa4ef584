"""The page Calibration: the age of the pedestals, the table of the modules, and maps that have the numbers of the API."""

import io
import pathlib
import re
import time
import urllib.request

import numpy as np
import pytest
from browser import AXE
from calibrations import COLUMNS, ago, expected, two_modules, write
from driving import Bench, program
from lanes import lanes, slow_lane
from service import Service, until
from test_calibration import dark_file, staged, truth
from test_web_access import Tokens, enter


@pytest.fixture
def served(tmp_path):
    """Serves the detector with two modules; gives the service and the folder of its calibration."""
    services = []

    def start(extra="", **tables):
        config = Bench(tmp_path).config(**two_modules(**tables))
        config.write_text(config.read_text() + extra)
        services.append(Service(config))
        return services[-1]

    yield start
    for service in services:
        service.end()


def numbers(service, **query):
    text = "&".join(f"{name}={value}" for name, value in query.items())
    with urllib.request.urlopen(f"{service.url}/api/v1/calibration/map?format=npy&{text}", timeout=30) as answer:
        return np.load(io.BytesIO(answer.read()))


def shows(tab, label):
    """Waits until this map is drawn."""
    return tab.shows(lambda frame: frame.get("label") == label, f"{label} is shown", timeout=60)


def choose(tab, field, words):
    tab.page.get_by_label(field, exact=True).select_option(label=words)


def test_age_table_and_maps_are_those_of_the_file(served, tmp_path, open_tab):
    service = served(alarms={"pedestal_age_hours": 1.0})
    path = write(tmp_path, 1, ago(minutes=42))
    tab = open_tab(service, "calibration")
    tab.state("Idle")
    tab.has(".calibration-age", "Pedestals taken 42 min ago")
    tab.has("section", "recommended: at most 60 min")
    rows = tab.page.locator(".calibration-table tbody tr")
    report = service.request("GET", "calibration")["calibration"]
    assert rows.count() == 2
    first = next(row for row in report["rows"] if (row["module"], row["stage"]) == (1, "g0"))
    words = rows.nth(1).inner_text()
    assert f"{first['median_pedestal_adu']:.1f} ± {first['median_rms_adu']:.2f}" in words and "OK" in words, words
    assert f"{first['masked']['dead']} dead" in words and f"{first['masked']['noisy']} noisy" in words, words
    frame = shows(tab, "pedestal of G0, cell 3")
    assert (frame["rows"], frame["columns"], frame["coding"]) == (1032, COLUMNS, f"linear {frame['range'][0]} {frame['range'][1]}")
    tab.has(".readout-image", "pedestal of G0, cell 3")
    # Exact pixels of the visible part once it is zoomed in; in the middle is the gap between the modules.
    tab.button("1:1").click()
    frame = tab.shows(lambda frame: frame["bin"] == 1, "each pixel is there")
    left, top, columns, rows = frame["region"]
    wanted = expected(path, "pedestal", 0)
    assert np.array_equal(numbers(service, quantity="pedestal"), wanted, equal_nan=True)
    for column, row in [(left + 5, top + 5), (left + columns // 2, top + rows - 3), (left + columns - 2, top + rows // 4)]:
        value = tab.value(column, row)
        if np.isnan(wanted[row, column]):
            assert value["kind"] == "masked"
        else:
            assert value == {"kind": "number", "value": pytest.approx(float(wanted[row, column]), rel=1e-7)}
    assert tab.value(left + 5, 515)["kind"] == "masked"


@pytest.mark.skipif(not AXE.is_file(), reason="no axe-core: npm ci in web/")
@pytest.mark.parametrize("scheme", lanes(["dark"], slow=["light"]))
def test_axe_finds_nothing_serious(served, tmp_path, open_tab, scheme):
    service = served(alarms={"pedestal_age_hours": 0.5})
    for hours in (20, 1):
        write(tmp_path, hours, ago(hours=hours))
    tab = open_tab(service, "calibration", color_scheme=scheme, bypass_csp=True)
    shows(tab, "pedestal of G0, cell 3")
    tab.page.add_script_tag(path=str(AXE))
    found = tab.page.evaluate("axe.run('main', { resultTypes: ['violations'] })")["violations"]
    assert [(one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in ("serious", "critical")] == []


def test_hover_says_the_value_and_the_reason(served, tmp_path, open_tab):
    service = served()
    path = write(tmp_path, 2, ago(hours=3))
    tab = open_tab(service, "calibration")
    shows(tab, "pedestal of G0, cell 3")
    choose(tab, "Quantity", "mask: reasons")
    shows(tab, "mask of G0, cell 3")
    mask = expected(path, "mask", 0)
    tab.button("1:1").click()
    frame = tab.shows(lambda frame: frame["bin"] == 1 and frame["channel"] == "mask", "each pixel is there")
    # Each pixel has one dot of the screen; which one is in the middle is read.
    overlay = tab.page.locator(".calibration-map .image-overlay")
    overlay.scroll_into_view_if_needed()
    box = overlay.bounding_box()
    middle = round(box["x"] + box["width"] / 2) + 0.5, round(box["y"] + box["height"] / 2) + 0.5
    tab.page.mouse.move(*middle)
    _, column_there, _, row_there = tab.has(".readout-place", "x ").split()
    left, top, columns, rows = frame["region"]
    # Beside what is visible, a frame has a margin.
    across, down = columns // 6, rows // 6
    inside = mask[top + down : top + rows - down, left + across : left + columns - across]
    for bits, words in ((2, "dead"), (8, "noisy")):
        row, column = (int(place[0]) for place in np.nonzero(inside == bits))
        row, column = row + top + down, column + left + across
        tab.page.mouse.move(middle[0] + column - int(column_there), middle[1] + row - int(row_there))
        tab.has(".readout-place", f"x {column} y {row}")
        tab.has(".readout-value", str(bits))
        tab.has(".mask-reading", words)


def test_the_difference_and_what_is_not_there(served, tmp_path, open_tab):
    service = served()
    tab = open_tab(service, "calibration")
    tab.state("Idle")
    tab.has("section", "cal.h5 does not exist")
    assert tab.page.locator(".calibration-map").count() == 0
    assert tab.complaints() == []
    tab.may_be_refused = True
    for seed, hours in ((3, 20), (4, 1)):
        path = write(tmp_path, seed, ago(hours=hours), shift=seed)
    tab.page.reload()
    shows(tab, "pedestal of G0, cell 3")
    tab.page.get_by_label("Difference to the previous calibration").check()
    frame = shows(tab, "pedestal of G0, cell 3, minus the previous")
    assert frame["levels"][0] < 1 < frame["levels"][1] and frame["coding"].startswith("linear")
    tab.has(".calibration-table thead", "Shift of G0")
    tab.page.get_by_label("Difference to the previous calibration").uncheck()
    choose(tab, "Quantity", "noise (ADU)")
    shows(tab, "noise of G0, cell 3")
    choose(tab, "Gain stage", "G1")
    tab.has(".image-empty", "has no noise of G1")
    assert tab.frame() is None
    choose(tab, "Quantity", "gain (ADU/keV)")
    shows(tab, "gain of G1")
    path.write_bytes(b"nothing")
    tab.page.reload()
    tab.has(".strip.error", "the file is damaged")


def test_without_rights_the_button_says_why(served, tmp_path, open_tab):
    tokens = Tokens(tmp_path)
    service = served(extra=tokens.extra)
    write(tmp_path, 5, ago(hours=1))
    tab = open_tab(service, "calibration")
    enter(tab, tokens.viewer)
    assert tab.button("Take pedestals").is_disabled()
    tab.has("form", "vera may only look: a token with the role operate is needed")
    shows(tab, "pedestal of G0, cell 3")


def test_a_stream_has_no_calibration(serve, open_tab):
    tab = open_tab(serve(), "calibration")
    tab.state("Idle")
    tab.has("section", "it sends whole images, which its own software has corrected")
    assert tab.page.locator(".calibration-table, .calibration-map, .strip.error").count() == 0


def test_the_progress_of_each_stage_is_shown(tmp_path, open_tab):
    bench = Bench(tmp_path)
    folder, _, _ = truth(bench)
    program("pedestal", dark_file(bench)[0], "-o", "cal.h5", "--gain", folder / "gain_adu_per_kev.f32", check=0, cwd=bench.folder)
    service = Service(staged(bench, images=60, rate=40))
    try:
        tab = open_tab(service, "calibration")
        # The service ends before the page does.
        tab.may_lose_contact = True
        tab.state("Idle")
        tab.page.get_by_label("Frames of each stage").fill("60")
        tab.button("Take pedestals").click()
        tab.has(".stage-progress", "G0 60 of 60 done", timeout=60)
        words = tab.has(".stage-progress", "of 60")
        assert "G1" in words and "G2" in words
        until(lambda: tab.page.locator(".stage-progress").count() == 0, "it is over")
        tab.has(".calibration-age", "Pedestals taken less than a minute ago")
        tab.has("section", "cal.previous.h5")
        tab.page.get_by_label("Difference to the previous calibration").check()
        tab.has(".measurement", "new pedestals")
    finally:
        service.end()


@slow_lane
def test_the_page_shows_16_million_pixels_in_seconds_and_in_little_memory(served, tmp_path, open_tab):
    """32 modules of JUNGFRAU: files of 1 GB each, of the calibration and of the one before."""
    for seed, hours in ((1, 20), (2, 1)):
        write(tmp_path, seed, ago(hours=hours), modules=32, shift=seed)
    tiles = [{"row": 550 * (module // 4), "column": 1064 * (module % 4)} for module in range(32)]
    service = served(detector={"type": "jungfrau", "modules": 32, "energy_kev": 12.4, "tile": tiles})
    peak_mib = lambda: int(re.search(r"VmHWM:\s+(\d+) kB", pathlib.Path(f"/proc/{service.process.pid}/status").read_text())[1]) / 1024
    before = peak_mib()
    tab = open_tab(service, "calibration")
    # Here 6 s for both files on two busy cores; once read, it is known.
    tab.has("section", "It is read")
    rows = tab.page.locator(".calibration-table tbody tr")
    until(lambda: rows.count() == 32, "the table of all modules", timeout=60)
    assert all("OK" in row and "dead" in row for row in rows.all_inner_texts())
    took = {}

    def timed(name, label, act):
        began = time.monotonic()
        act()
        shows(tab, label)
        took[name] = time.monotonic() - began

    timed("pedestal", "pedestal of G0, cell 3", lambda: None)
    frame = tab.frame()
    assert (frame["rows"], frame["columns"]) == (7 * 550 + 512, 3 * 1064 + 1024)
    timed("mask", "mask of G0, cell 3", lambda: choose(tab, "Quantity", "mask: reasons"))
    timed("gain", "gain of G0", lambda: choose(tab, "Quantity", "gain (ADU/keV)"))
    timed("difference", "pedestal of G0, cell 3, minus the previous", lambda: (choose(tab, "Quantity", "pedestal (ADU)"), tab.page.get_by_label("Difference to the previous calibration").check()))
    tab.button("1:1").click()
    frame = tab.shows(lambda frame: frame["bin"] == 1, "each pixel is there")
    wanted = numbers(service, quantity="pedestal", minus_previous="true")
    left, top, columns, rows = frame["region"]
    for column, row in [(left + 5, top + 5), (left + columns - 2, top + rows // 4)]:
        value = tab.value(column, row)
        assert value["kind"] == "masked" if np.isnan(wanted[row, column]) else value["value"] == pytest.approx(float(wanted[row, column]), rel=1e-6)
    began = time.monotonic()
    tab.page.reload()
    until(lambda: tab.page.locator(".calibration-table tbody tr").count() == 32, "the table again")
    took["again"] = time.monotonic() - began
    assert all(seconds < 10 for seconds in took.values()), took
    # A map of floats has 70 MB; at most a few of them.
    assert peak_mib() - before < 500, (before, peak_mib())
