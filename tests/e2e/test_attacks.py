"""A service under attack: the runs of the other detectors lose nothing, and `cancel` of the attacked detector answers
in time. One attack at a time, and all of them for half an hour."""

import os
import pathlib
import random
import threading
import time

import pytest
from attacks import ATTACKS, attacked
from detectors import FourDetectors, WholeRuns
from lanes import SLOW
from service import more_than, settled

SOAK_S = float(os.environ.get("KONKORDIA_SOAK_S", "1800"))
# The limit stated in docs/service.md, in s.
CANCEL_S = 5
MIB = 1 << 20

# The attacks need most of two cores, and the tests measure how long `cancel` takes.
pytestmark = pytest.mark.alone


def report(line):
    print(line, flush=True)
    if table := os.environ.get("KONKORDIA_ATTACK_TABLE"):
        with pathlib.Path(table).open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def answered_in_time(outcome):
    assert outcome.cancel_s < CANCEL_S and outcome.answer["state"] == "idle", (outcome.cancel_s, outcome.answer)


@pytest.fixture(scope="module")
def four(tmp_path_factory):
    four = FourDetectors(tmp_path_factory.mktemp("four"))
    yield four
    four.close()


@pytest.mark.parametrize("attack", ATTACKS, ids=[attack.name for attack in ATTACKS])
def test_an_attack_costs_the_runs_beside_nothing_and_keeps_nobody_from_cancel(four, attack):
    """The same service is attacked in all of these tests, one after the other."""
    packets, other_packets, messages, other_messages = four.all
    target = other_packets if isinstance(other_packets, tuple(attack.kinds)) else other_messages
    if attack.on_small_disk and not target.has_small_disk:
        pytest.skip("no right to mount a small tmpfs")
    beside = [WholeRuns(packets, images_per_run=100), WholeRuns(messages, images_per_run=100)]
    try:
        for runs in beside:
            runs.go_on(3)
        outcome = attacked(attack, target, lambda: [runs.go_on(10) for runs in beside], random.Random(1))
    finally:
        for runs in beside:
            runs.end()
    report(outcome.line(", ".join(map(str, beside))))
    answered_in_time(outcome)
    # The attacked detector works as before.
    target.ready_again()
    target.whole_run(10)


class Minutes:
    """Records once a minute how many images the service has taken and how much memory, files and threads it needs."""

    def __init__(self, four, every_s):
        self.four, self.every_s, self.is_over = four, every_s, threading.Event()
        self.began = time.monotonic()
        names = [detector.name for detector in four.all]
        self.lines = [f"{'minute':>6} " + " ".join(f"{name:>12}" for name in names) + f" {'RSS MiB':>8} {'files':>6} {'threads':>8}"]
        self.thread = threading.Thread(target=self._look)
        self.thread.start()

    def _look(self):
        while not self.is_over.wait(self.every_s):
            self.lines.append(self.line())

    def line(self):
        images = [self.four.service.statistics(detector=detector.name)["totals"]["images_complete"] for detector in self.four.all]
        files, threads, resident = self.four.service.resources()
        minute = (time.monotonic() - self.began) / 60
        return f"{minute:6.1f} " + " ".join(f"{count:12}" for count in images) + f" {resident / MIB:8.0f} {files:6} {threads:8}"

    def end(self):
        self.is_over.set()
        self.thread.join()
        report("complete images of each detector, and what the service needs:\n" + "\n".join(self.lines))


def is_flat(resident):
    """Checks the memory of the idle service after each round, in MiB. The allocator keeps part of the memory that the
    largest endless message took before it was cut off, which is more if the service had to wait for a processor. This
    amount is reached soon and must not grow afterwards."""
    assert max(resident) < resident[0] + 512, resident
    half = len(resident) // 2
    assert len(resident) < 6 or max(resident[half:]) < max(resident[:half]) + 64, resident


def a_round(four, rng, seen):
    """Makes each attack once on a random detector, while the other detectors go on with their runs. The attacked
    detector then joins them again."""
    runs = {detector: WholeRuns(detector, images_per_run=100) for detector in four.all}
    try:
        for attack in rng.sample(ATTACKS, len(ATTACKS)):
            target = rng.choice([detector for detector in four.all if isinstance(detector, tuple(attack.kinds))])
            if attack.on_small_disk and not target.has_small_disk:
                report(f"left out: {attack.name} (no right to mount a small tmpfs)")
                continue
            runs.pop(target).end()
            outcome = attacked(attack, target, lambda: [beside.go_on(10) for beside in runs.values()], rng)
            report(outcome.line("goes on"))
            answered_in_time(outcome)
            runs[target] = WholeRuns(target, images_per_run=100)
            seen.append(attack.name)
    finally:
        for beside in runs.values():
            beside.end()


@pytest.mark.skipif(not SLOW, reason="slow lane: KONKORDIA_SLOW=1 (KONKORDIA_SOAK_S seconds)")
def test_a_soak_under_all_attacks(four):
    seed = int(os.environ.get("KONKORDIA_SOAK_SEED", time.time_ns() % 2**32))
    report(f"soak of {SOAK_S:.0f} s, KONKORDIA_SOAK_SEED={seed}")
    rng, seen, rests = random.Random(seed), [], []
    minutes = Minutes(four, every_s=min(60, SOAK_S / 8))
    try:
        # The first round warms up; at least two more are compared with it.
        while time.monotonic() - minutes.began < SOAK_S or len(rests) < 3:
            a_round(four, rng, seen)
            rests.append((*settled(four.service), four.service.resources()[2] / MIB))
            report("after round {}: {} files, {} threads, {:.0f} MiB, all detectors idle".format(len(rests), *rests[-1]))
            # Threads of HTTP end when they have been idle for a while.
            assert not more_than(rests[0][:2], four.service, within_s=60), (rests, four.service.resources())
            is_flat([resident for _, _, resident in rests])
    finally:
        minutes.end()
    report(f"{len(seen)} attacks in {len(rests)} rounds")
