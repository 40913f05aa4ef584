"""A page and a service of different versions: the page says so once, ignores what it does not know, and goes on."""

import json
import re
import signal
import urllib.request

import numpy as np
import pytest
from service import Service, free_port, until, write_config
from streams import Stins

SHAPE = (24, 40)
RELOAD = "Reload the page"


class Between:
    """Stands between a tab and the live connection of its service, and changes what it lets through: what the service says
    by `change`, which gets the connection and a message and gives those in its place."""

    def __init__(self, tab, change):
        self.connections, self.said, self.change = [], [], change
        tab.context.route_web_socket(re.compile("/api/v1/live$"), self._open)
        tab.page.reload()

    def _open(self, page):
        service = page.connect_to_server()
        self.connections.append(page)

        def from_service(message):
            for one in self.change(page, message):
                page.send(one)

        def from_page(message):
            self.said.append(json.loads(message))
            service.send(message)

        service.on_message(from_service)
        page.on_message(from_page)

    def end(self, code=1012):
        self.connections[-1].close(code=code, reason="")


def changed(message, kind, **fields):
    """The message with other fields, if it is one of this type."""
    if isinstance(message, bytes) or (found := json.loads(message))["type"] != kind:
        return message
    return json.dumps({**found, **fields})


def test_after_a_service_of_another_version_comes_back_the_page_asks_once_to_be_loaded_again(serve, open_tab):
    service = serve()
    service.send(*Stins().series([np.ones(SHAPE, "uint16")]))
    service.taken(1)
    tab = open_tab(service)
    tab.may_lose_contact = True
    is_new = []
    between = Between(tab, lambda _, message: [changed(message, "welcome", version="99.0.0") if is_new else message])
    tab.shows_image(0)
    between.end()
    until(lambda: tab.page.evaluate("1") and len(between.connections) == 2, "it comes back")
    tab.state("Idle")
    assert tab.page.get_by_text("New version").count() == 0, "the same version came back"
    is_new.append(True)
    between.end()
    tab.has(".strip.warning", "New version: this page and the service are of different versions")
    assert tab.button(RELOAD).count() == 1
    for page in ("files", "logs", "live"):
        tab.show(page)
        assert tab.button(RELOAD).count() == 1, page
    # It can be used meanwhile.
    tab.shows_image(0)
    tab.button(RELOAD).click()
    tab.state("Idle")
    tab.shows_image(0)
    assert tab.button(RELOAD).count() == 0
    between.end()
    until(lambda: tab.page.evaluate("1") and len(between.connections) == 5, "it comes back")
    tab.state("Idle")
    assert tab.button(RELOAD).count() == 0


def test_a_service_that_restarts_with_the_same_version_asks_for_nothing(tmp_path, open_tab):
    config, port = write_config(tmp_path, 19999, run={"images": 5}), free_port()
    service = Service(config, listen=f"127.0.0.1:{port}")
    tab = open_tab(service)
    tab.may_lose_contact = True
    tab.state("Idle")
    service.end(signal.SIGTERM)
    tab.has(".strip.error", "No contact")
    again = Service(config, listen=f"127.0.0.1:{port}")
    try:
        tab.state("Idle")
        until(lambda: tab.page.locator(".strip").count() == 0, "nothing is wrong any more")
    finally:
        again.end(signal.SIGKILL)


def test_a_page_is_never_kept_by_the_browser(serve):
    service = serve()
    for name in ["", "konkordia.js", "konkordia.css"]:
        with urllib.request.urlopen(f"{service.url}/{name}", timeout=10) as answer:
            assert "no-store" in answer.headers["Cache-Control"], name


STRANGE = [
    "", "{", "[]", "null", "17", '"status"', "{}", '{"type": 5}', '{"type": "thermometer", "kelvin": 4}', '{"type": "status"}', '{"type": "status", "detectors": 7}',
    '{"type": "statistics", "statistics": null}', '{"type": "event"}', '{"type": "missed", "events": 12}', b"", b"KF", b"KFR9" + bytes(64), b"KFR1\xff\xff\xff\x7f" + bytes(9),
]  # fmt: skip


def stranger(message):
    """The message with fields that nobody knows."""
    if isinstance(message, bytes):
        length = int.from_bytes(message[4:8], "little")
        header = {**json.loads(message[8 : 8 + length]), "colour_space": "CIE", "levels_99": [1, 2], "results_v2": {"a": [[1]]}}
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        return message[:4] + len(text).to_bytes(4, "little") + text + message[8 + length :]
    found = {**json.loads(message), "new": {"deep": [1, None]}}
    if found["type"] == "status":
        found["detectors"] = [{**detector, "temperature_k": 77, "modules": [{"x": 1}]} for detector in found["detectors"]]
    if found["type"] == "statistics":
        found["statistics"] = {**found["statistics"], "neutrinos": 3, "queues": {**found["statistics"]["queues"], "quantum": 0.5}}
    return json.dumps(found)


def test_messages_and_fields_that_the_page_does_not_know_are_ignored(serve, open_tab):
    service, stins = serve(), Stins()
    tab = open_tab(service)
    Between(tab, lambda _, message: [*STRANGE, stranger(message)])
    tab.state("Idle")
    service.send(stins.start())
    for number in range(6):
        service.send(stins.image(number, np.full(SHAPE, number, "uint16")))
        tab.shows_image(number)
        assert tab.value(3, 3) == {"kind": "number", "value": number}
    service.send(stins.end())
    tab.has(".bar-message", "run 1 has ended")
    for page in ("acquire", "performance", "files", "logs"):
        tab.show(page)
    assert tab.page.locator(".strip").count() == 0 and tab.complaints() == []


def test_a_state_or_role_of_a_newer_service_breaks_nothing(serve, open_tab):
    tab = open_tab(serve(), "acquire")
    newer = {"state": "warming_up", "severity": "notice"}

    def change(_, message):
        if not isinstance(message, bytes) and (found := json.loads(message))["type"] == "status":
            message = json.dumps({**found, "detectors": [{**detector, **newer} for detector in found["detectors"]]})
        return [changed(message, "welcome", role="astronaut")]

    Between(tab, change)
    # Whoever has a role that the page does not know may only look.
    tab.has(".strip.warning", "may only look")
    assert tab.button("Start").is_disabled()
    until(lambda: tab.text(".bar .state").split() not in ([], ["State:"]), "some word or a dash for the state", timeout=10)
    for page in ("live", "performance", "logs"):
        tab.show(page)
    assert tab.complaints() == []


@pytest.mark.parametrize(("field", "value"), [("format", "code24"), ("packing", "zstd")])
def test_frames_of_a_newer_service_are_said_to_need_a_newer_page(serve, open_tab, field, value):
    service = serve()
    service.send(*Stins().series([np.ones(SHAPE, "uint16")]))
    service.taken(1)
    tab = open_tab(service)

    def change(_, message):
        if isinstance(message, bytes):
            length = int.from_bytes(message[4:8], "little")
            text = json.dumps({**json.loads(message[8 : 8 + length]), field: value}).encode()
            text += b" " * (-len(text) % 8)
            message = message[:4] + len(text).to_bytes(4, "little") + text + message[8 + length :]
        return [message]

    between = Between(tab, change)
    tab.has(".image-note.error", "load the page again")
    tab.state("Idle")
    # They are acknowledged all the same: the contact goes on.
    until(lambda: tab.page.evaluate("1") and any(one["type"] == "ack" for one in between.said), "an acknowledgement")


def test_a_service_that_does_not_understand_the_page_says_so_until_it_is_loaded_again(serve, open_tab):
    tab = open_tab(serve())
    tab.may_lose_contact = True
    problem = {"type": "problem", "code": "bad_message", "detail": "unknown field `hz_max`", "hint": "docs/live.md lists the fields"}

    def change(page, message):
        # As after a watch that the service does not know.
        if not isinstance(message, bytes) and json.loads(message)["type"] == "status":
            page.send(json.dumps(problem))
            page.close(code=4400, reason="")
            return []
        return [message]

    between = Between(tab, change)
    tab.page.get_by_role("button", name=RELOAD).wait_for()
    # It stays there through further attempts, which become rare.
    seen = []
    for _ in range(40):
        tab.page.wait_for_timeout(100)
        seen.append(tab.button(RELOAD).count())
    assert set(seen) == {1} and 3 <= len(between.connections) <= 5, (seen, len(between.connections))
