"""Runs as they are seen and driven in the browser, with an EIGER of the simulator."""

import re
import signal

import numpy as np
import pytest
from browser import pixels
from service import Service, free_port, write_config
from streams import Stins

FEW = {"images": 20}


def numbers(tab):
    """The numbers of the bar, by name."""
    parts = tab.page.locator(".bar-number").all_inner_texts()
    return dict(re.sub(r"▲\s*", "", part).replace("\u202f", "").split("\n", 1) for part in parts)


def test_before_anything_came_no_number_is_shown(serve, open_tab):
    tab = open_tab(serve())
    tab.has(".image-empty", "No image yet.")
    assert tab.frame() is None
    tab.has(".readout-image", "–")
    tab.has(".bar-file", "file –")
    assert [name for name in ("rate", "data", "buffer") if numbers(tab)[name] not in ("–", "0 Hz", "0 B/s", "0 %")] == []


def test_state_and_counts_follow_a_run(bench, open_tab):
    service = bench.serve(run=FEW)
    tab = open_tab(service)
    tab.state("Idle")
    service.command("arm")
    tab.state("Armed")
    tab.has(".bar .progress", "0 of 20 images")
    bench.send(20, rate=20)
    tab.has(".bar .progress", "20 of 20 images, 100 %")
    tab.state("Idle")
    tab.has(".bar-message", "success")
    tab.has(".bar-file", "run_000001_master.h5")
    assert numbers(tab)["lost"] == "0"
    frame = tab.shows_image(19, run=1)
    assert (frame["rows"], frame["columns"]) == pixels(service, 19).shape


def test_it_is_measuring_while_images_come(serve, open_tab):
    service, stins = serve(), Stins()
    tab = open_tab(service)
    tab.state("Idle")
    service.send(stins.start(), stins.image(0, np.ones((24, 40), "uint16")))
    tab.state("Measuring")
    tab.shows_image(0)
    service.send(stins.image(1, np.ones((24, 40), "uint16")))
    tab.shows_image(1)
    service.send(stins.end())
    tab.state("Idle")


def test_lost_images_are_marked(bench, open_tab):
    service = bench.serve(run={**FEW, "stall_timeout_s": 1})
    tab = open_tab(service)
    service.command("arm")
    tab.state("Armed")
    bench.send(20, loss=0.2)
    tab.state("Idle")
    tab.has(".bar-number.bad", "partial")
    status = service.status()
    assert status["images_partial"] > 0
    assert numbers(tab)["partial"] == str(status["images_partial"])


def test_a_run_is_armed_started_stopped_and_cancelled(bench, open_tab):
    service = bench.serve(run=FEW)
    tab = open_tab(service, "acquire")
    tab.may_be_refused = True
    tab.state("Idle")
    command = lambda verb: tab.page.locator(".command").get_by_role("button", name=verb)
    tab.page.get_by_label("Images", exact=True).fill("7")
    tab.page.get_by_label("Prefix of the files").fill("lyso")
    tab.page.get_by_label("Sample", exact=True).fill("lysozyme")
    command("Arm").click()
    tab.state("Armed")
    status = service.status()
    assert status["images_expected"] == 7 and status["file"].endswith("/lyso_master.h5"), status
    assert command("Arm").is_disabled()
    tab.has("#why-arm", "it is already armed")
    command("Start").click()
    bench.send(3)
    tab.has(".bar .progress", "3 of 7 images")
    tab.state("Measuring")
    command("Stop").click()
    tab.state("Idle")
    assert service.status()["images_committed"] == 3
    command("Arm").click()
    tab.has(".strip.error", "What to do:")
    tab.page.get_by_label("Prefix of the files").fill("other")
    command("Arm").click()
    tab.state("Armed")
    command("Cancel").click()
    tab.state("Idle")
    assert service.status()["ended"] == "cancelled"


@pytest.mark.parametrize(
    ("label", "text", "reason"),
    [
        ("Images", "1.5", "a whole number is needed"),
        ("Images", "0", "images are possible"),
        ("Prefix of the files", "../up", "a name cannot have a part . or .."),
        ("Photon energy (keV)", "12,4", "with a point for decimals"),
        ("Transmission (0 to 1)", "2", "0 to 1 is possible"),
    ],
)
def test_wrong_values_are_refused_as_one_types(serve, open_tab, label, text, reason):
    tab = open_tab(serve(), "acquire")
    tab.state("Idle")
    field = tab.page.get_by_label(label, exact=True)
    field.press_sequentially(text)
    tab.has(f".field:has(#{field.get_attribute('id')}) .wrong", reason)
    assert field.get_attribute("aria-invalid") == "true"
    assert tab.button("Start").is_disabled()
    tab.has("#why-start", "a field of the form is wrong")
    field.fill("")
    tab.has("#why-start", "arms and starts")
    assert tab.button("Start").is_enabled()


def test_a_run_that_fails_says_what_why_and_what_to_do(serve, open_tab):
    service = serve()
    tab = open_tab(service)
    tab.state("Idle")
    service.send(*Stins().series([np.ones((24, 40), "uint16")], filename="../out.h5"))
    tab.state("Error")
    status = service.until(lambda s: s["state"] == "error")
    words = tab.has(".bar-message", "What to do:")
    assert status["message"].split()[0] in words and status["hint"].split()[-1] in words
    tab.button("Clear error").click()
    tab.state("Idle")


def test_a_problem_can_be_copied_and_closed(bench, open_tab):
    service = bench.serve(run=FEW)
    tab = open_tab(service, "acquire", permissions=["clipboard-read", "clipboard-write"])
    tab.may_be_refused = True
    tab.state("Idle")
    (bench.folder / "there_master.h5").write_text("")
    tab.page.get_by_label("Prefix of the files").fill("there")
    tab.page.locator(".command").get_by_role("button", name="Arm").click()
    tab.has(".strip.error", "What to do:")
    tab.button("Copy details").click()
    tab.has(".strip.error", "Copied")
    assert '"hint"' in tab.page.evaluate("navigator.clipboard.readText()")
    tab.button("Close").click()
    assert tab.page.locator(".strip.error").count() == 0


def test_lost_contact_greys_the_page_and_comes_back(tmp_path, open_tab):
    config, port = write_config(tmp_path, 19999, run=FEW), free_port()
    service = Service(config, listen=f"127.0.0.1:{port}")
    tab = open_tab(service)
    tab.may_lose_contact = True
    tab.state("Idle")
    assert tab.page.locator(".old").count() == 0
    service.end(signal.SIGKILL)
    words = tab.has(".strip.error", "No contact with konkordia at")
    assert re.search(rf"at 127\.0\.0\.1:{port} since \d\d:\d\d:\d\d, trying again \(\d+\)", words), words
    assert tab.page.locator("main.old, .bar.old").count() == 2
    assert tab.page.evaluate("getComputedStyle(document.querySelector('main')).filter + getComputedStyle(document.querySelector('main')).opacity") != "none1"
    tab.show("acquire")
    assert tab.button("Start").is_disabled()
    tab.has("#why-start", "there is no contact with the service")
    again = Service(config, listen=f"127.0.0.1:{port}")
    try:
        tab.has("#why-start", "arms and starts")
        assert tab.page.locator(".strip.error, .old").count() == 0
        tab.state("Idle")
    finally:
        again.end(signal.SIGKILL)
