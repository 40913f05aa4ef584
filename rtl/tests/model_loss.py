"""The loss detector of RASHPA with sets of numbers, by the rules of crates/fabric/src/loss.rs; `tests/rtl_vectors.rs` of
that crate compares rtl/vectors/loss.csv with the program."""

from __future__ import annotations

import dataclasses
import random

CODES = ("new", "gap", "duplicate", "late")
REGISTER, WINDOW = 1024, 512


@dataclasses.dataclass(frozen=True)
class Event:
    """A packet, or a drain (of which last says whether the number is the last one that was sent)."""

    number: int
    drain: bool = False
    last: bool = False


class Model:
    """One flow."""

    def __init__(self, bits: int, first: int | None) -> None:
        self.bits, self.first = bits, first
        self.newest, self.tested = -1, -1
        self.came: set[int] = set()
        self.lost = 0

    def position(self, number: int) -> int:
        """Of a number, next to the newest one."""
        if self.first is None:
            self.first = number % (1 << self.bits)
        step = (number - self.first - self.newest) % (1 << self.bits)
        return self.newest + (step - (1 << self.bits) if step >> (self.bits - 1) else step)

    def _test(self, to: int) -> list[tuple[int, int]]:
        """Runs of lost positions up to there."""
        runs: list[tuple[int, int]] = []
        at = self.tested + 1
        for there in sorted(p for p in self.came if self.tested < p <= to):
            if there > at:
                runs.append((at, there))
            at = there + 1
        if to + 1 > at:
            runs.append((at, to + 1))
        self.tested = max(self.tested, to)
        self.lost += sum(end - start for start, end in runs)
        return runs

    def event(self, event: Event) -> tuple[str, list[tuple[int, int]]]:
        """What an arrival means, and which positions are found to be lost."""
        if event.drain:
            if event.last:
                self.newest = max(self.newest, self.position(event.number))
            return "drain", self._test(self.newest)
        position = self.position(event.number)
        if position > self.newest:
            verdict = "gap" if position - self.newest >= REGISTER else "new"
        elif position < 0 or position <= self.newest - REGISTER:
            return "late", []
        elif position in self.came:
            return "duplicate", []
        else:
            verdict = "late" if position <= self.tested else "new"
        runs = []
        if position > self.newest:
            self.newest = position
            # The register forgets what is 1024 and more behind the newest one.
            self.came = {p for p in self.came if p > position - REGISTER or p > self.tested}
            runs = self._test(position - WINDOW + 1)
            self.came = {p for p in self.came if p > position - REGISTER}
        self.came.add(position)
        return verdict, runs


def traffic(seed: int, packets: int, bits: int, first: int) -> list[Event]:
    """Packets with loss, disorder, repeats, jumps over the wrap of the numbers, and drains."""
    dice = random.Random(seed)
    made: list[tuple[float, Event]] = []
    position = first
    for time in range(packets):
        jump = dice.random()
        position += 1 + (dice.choice((5, 200, 511, 512, 513, 1022, 1023, 1024, 1025, 1600, 5000, 1 << 20)) if jump < 0.01 else 0)
        number = position % (1 << bits)
        if dice.random() < 0.08:
            continue
        due = time + dice.choice((0, 0, 0, 3 * dice.random(), 600 * dice.random() * (dice.random() < 0.05)))
        made.append((due, Event(number)))
        if dice.random() < 0.04:
            made.append((due + dice.choice((1, 300, 1500)), Event(number)))
        if dice.random() < 0.004:
            made.append((time + 0.5, Event((number + dice.choice((0, 3, 700, 1500))) % (1 << bits), True, dice.random() < 0.5)))
        if dice.random() < 0.004:
            made.append((time + 0.5, Event((number - dice.choice((1000, 1023, 1024, 1025, 3000))) % (1 << bits))))
    return [event for _, event in sorted(made, key=lambda pair: pair[0])]
