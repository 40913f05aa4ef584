"""Two operators at one detector, what a run will need, and what the machine does, as the pages show it."""

import re

import pytest
from service import until
from test_web_access import Tokens, enter


@pytest.fixture
def people(tmp_path):
    tokens = Tokens(tmp_path)
    return tokens, {name: tokens.make(name, "operate") for name in ("alice", "bob")}


def needs(tab):
    """What the run needs, by name, as it is shown."""
    parts = tab.page.locator(".need").all_inner_texts()
    return dict(re.sub(r"▲\s*", "", part).replace("\u202f", "").split("\n", 1) for part in parts)


def in_bar(tab, name):
    return tab.page.locator(".bar").get_by_role("button", name=name, exact=True)


def test_the_run_of_somebody_else_is_ended_only_after_a_question(bench, open_tab, people):
    tokens, of = people
    service = bench.serve(run={"images": 5}, extra=tokens.extra)
    alice, bob = open_tab(service, "acquire"), open_tab(service, "acquire")
    enter(alice, of["alice"])
    enter(bob, of["bob"])
    bob.may_be_refused = True
    alice.state("Idle")
    alice.button("Start").click()
    for tab in (alice, bob):
        tab.state("Armed")
        assert re.search(r"started by alice \d+ s ago", tab.has(".bar-operator", "started by alice"))
    for place in (".bar", ".command-row"):
        bob.page.locator(place).get_by_role("button", name="Cancel", exact=True).click()
        bob.has("dialog[open]", "Cancel the run of alice?")
        bob.has("dialog[open]", "It was started by alice")
        bob.button("Go on measuring").click()
        assert bob.page.locator("dialog").count() == 0
    in_bar(bob, "Stop").click()
    bob.has("dialog[open]", "Stop the run of alice?")
    bob.button("Go on measuring").click()
    alice.state("Armed")
    in_bar(bob, "Cancel").click()
    bob.button("Cancel the run of alice").click()
    alice.state("Idle")
    assert alice.page.locator(".bar-operator").count() == 0
    # One's own run is ended at once.
    alice.button("Start").click()
    alice.state("Armed")
    in_bar(alice, "Cancel").click()
    alice.state("Idle")


def test_what_a_run_needs_is_said_as_one_types(bench, open_tab):
    service = bench.serve(run={"images": 5})
    tab = open_tab(service, "acquire")
    tab.state("Idle")
    tab.page.get_by_label("Images", exact=True).fill("1000")
    tab.page.get_by_label("Image to image (µs)", exact=True).fill("2000")
    # Each of the two fields has an answer of its own.
    until(lambda: needs(tab).get("images") == "1000" and needs(tab)["time"] == "00:02 at 500.0 Hz", "the needs of the run")
    found = needs(tab)
    assert found["files"].endswith("at most"), found
    assert found["disk free"].endswith("enough") and found["memory"].endswith("MB"), found
    tab.page.get_by_label("Write files").select_option("no")
    until(lambda: needs(tab)["files"].endswith("none are written"), "no files")
    tab.page.get_by_label("Write files").select_option("configured")
    tab.page.get_by_label("Images", exact=True).fill(str(2**40))
    tab.has(".need-problem", "has no room for this run")
    tab.has(".need.bad", "too little")
    assert tab.button("Arm").is_enabled(), "the detector decides, and not the page"
    tab.page.get_by_label("Images", exact=True).fill("5")
    until(lambda: tab.page.locator(".need-problem, .need.bad").count() == 0, "there is room")
    assert service.status()["run"] == 0 and service.request("GET", "files")["files"] == []


def test_what_the_service_would_refuse_stands_at_its_field(bench, open_tab):
    service = bench.serve(run={"images": 5})
    (bench.folder / "there_master.h5").write_bytes(b"")
    tab = open_tab(service, "acquire")
    tab.state("Idle")
    field = tab.page.get_by_label("Prefix of the files")
    wrong = f".field:has(#{field.get_attribute('id')}) .wrong"
    for prefix, words in [("there", "the file exists"), ("no/run", "does not exist"), ("/etc/run", "outside")]:
        field.fill(prefix)
        tab.has(wrong, words)
        assert field.get_attribute("aria-invalid") == "true"
    field.fill("free")
    until(lambda: tab.text(wrong) == "", "nothing is wrong")


def test_the_newest_answer_wins_and_few_questions_are_asked(bench, open_tab):
    service = bench.serve(run={"images": 5})
    tab = open_tab(service, "acquire")
    tab.state("Idle")
    asked = []
    tab.page.on("request", lambda request: asked.append(request.post_data) if "dry_run" in request.url else None)
    tab.page.get_by_label("Images", exact=True).press_sequentially("123456", delay=20)
    until(lambda: needs(tab).get("images") == "123456", "the newest answer")
    assert len(asked) <= 3, asked
    # An answer that is held up does not replace that of a later question.
    held = []
    tab.page.route("**/arm?*dry_run*", lambda route: held.append(route) if '"images":7}' in route.request.post_data else route.continue_())
    tab.page.get_by_label("Images", exact=True).fill("7")
    until(lambda: tab.page.wait_for_timeout(20) or held, "the question is held up")
    tab.page.get_by_label("Images", exact=True).fill("8")
    until(lambda: tab.page.wait_for_timeout(20) or needs(tab)["images"] == "8", "the newest answer")
    held[0].continue_()
    tab.page.wait_for_timeout(300)
    assert needs(tab)["images"] == "8"


def test_each_text_to_copy_says_what_it_is(bench, open_tab):
    tab = open_tab(bench.serve(), "acquire")
    tab.state("Idle")
    for name, title in [("Python", "A script in Python"), ("curl", "A line for a terminal"), ("TOML", "Lines for the configuration")]:
        tab.button(name).click()
        tab.has(".snippet-card h3", title)
        assert len(tab.text(".snippet-card p.soft").split()) > 8


def test_performance_shows_threads_room_and_lost_packets(bench, open_tab):
    service = bench.serve(run={"images": 40, "stall_timeout_s": 1})
    tab = open_tab(service, "performance")
    tab.state("Idle")
    section = lambda name: f"section[aria-label='{name}']"
    tab.has(section("Lost packets"), "None are counted by module")
    service.command("arm")
    tab.has(section("Threads"), "receive packets and messages")
    tab.has(section("Threads"), "write files")
    tab.has(section("Disk and memory"), str(bench.folder))
    assert re.search(r"memory used [\d.]+ MB of ", tab.has(section("Disk and memory"), "memory used"))
    bench.send(40, loss=0.2)
    service.wait()
    tab.has(section("Lost packets"), "before this machine")
    lost = sum(module["lost_packets"] for module in service.request("GET", "machine")["modules"])
    tab.has(".module.bad", f"{lost}" if lost < 1000 else f"{lost // 1000} {lost % 1000:03}")
    tab.has(".module.bad", "▲")
    tab.has(section("Lost packets"), "look at cables, switch and network card")


def test_the_bar_shows_the_free_space_and_asks_for_it_rarely(bench, open_tab):
    service = bench.serve(run={"images": 5})
    tab = open_tab(service)
    asked = []
    tab.page.on("request", lambda request: asked.append(request.url) if "/machine" in request.url else None)
    tab.state("Idle")
    free = lambda: dict(part.replace("▲", "").strip().split("\n") for part in tab.page.locator(".bar-number").all_inner_texts())["disk free"]
    until(lambda: re.fullmatch(r"[\d.]+ [kMGTP]?B", free()), "the free space")
    tab.page.wait_for_timeout(3000)
    assert len(asked) <= 1, asked
    tab.show("performance")
    until(lambda: tab.page.wait_for_timeout(50) or len(asked) >= 3, "it is asked for often where it is shown", 20)
    tab.show("logs")
    tab.page.wait_for_timeout(2500)
    seen = len(asked)
    tab.page.wait_for_timeout(2500)
    assert len(asked) <= seen + 1, "and rarely again"
