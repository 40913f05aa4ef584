"""`konkordia card` with frames that a program of these tests writes in the place of a card: docs/fpga.md, "A card"."""

import ctypes
import fcntl
import json
import mmap
import os
import pathlib
import re
import signal
import struct
import subprocess
import sys
import time

import h5py
import numpy as np
import pytest

from driving import BINARY, program

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "rtl/tests"))
from card_setup import factors_of, packed_constants, quantise  # noqa: E402
from program import shipped  # noqa: E402

HEAD, REGISTERS, RELEASED, STOP, STATE, CLOCKS, LINE, PACKETS, LOGIC = 4096, 64, 128, 136, 256, 264, 320, 400, 512
F_OFD_SETLK = 37
# A module with two interfaces, whose packets have a block of 4096 pixels each.
PROGRAM, ROWS, COLUMNS, TILES, TILE_PACKETS = "jungfrau-2", 512, 1024, 2, 64
ALL = (1 << TILE_PACKETS) - 1
# Registers of the logic in the order of `REGISTERS` in crates/fabric/src/card/logic.rs.
LOGIC_NAMES = [f"{key}_{part}" for key in ("frame", "packet", "module") for part in ("offset", "big", "mask", "shift")]
LOGIC_NAMES += ["frame_bits", "first_packet", "packets", "frame_packets", "datagram_bytes", "header_sixteenths", "tiles", "slot_bytes"]
LOGIC_NAMES += ["unit_log2", "ip_version", "address_low", "address_high", "port_first", "streams", "high_gain", "shifts"]
MISSING = -32766
ENERGY_KEV = 12.4


def shuffled(pixels):
    """Bitshuffle of blocks of 4096 numbers of 16 bits: one bit of all of them behind another."""
    bits = np.unpackbits(pixels.astype("<i2").view(np.uint8).reshape(-1, 4096, 2), axis=2, bitorder="little")
    return np.packbits(bits.transpose(0, 2, 1), axis=2, bitorder="little").tobytes()


def wait(is_so, seconds=30):
    """Waits until something is so."""
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "konkordia does not move"
        time.sleep(0.001)


class Card:
    """What a card does with the memory."""

    def __init__(self, address):
        process, file, _ = address.split("/")
        self.file = os.open(f"/proc/{process}/fd/{file}", os.O_RDWR)
        self.memory = mmap.mmap(self.file, os.fstat(self.file).st_size)
        assert self.memory[:8] == b"KONKSHM1"
        version, is_unsigned, self.first, self.slots, self.slot_bytes, self.start, self.ring, self.image_bytes, packets, tiles = struct.unpack_from(
            "<IIQQQQQQII", self.memory, HEAD
        )
        assert (version, packets, tiles) == (2, TILE_PACKETS, TILES)
        self.is_unsigned = is_unsigned == 1
        fcntl.fcntl(self.file, F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, HEAD + self.ring, 1, 0))
        assert self.word(self.ring + 72) == 1, "konkordia takes frames"
        self.written, self.line, self.placed = 0, 0, 0
        self.set(STATE, 1)

    def bytes(self, at, count):
        return self.memory[HEAD + at : HEAD + at + count]

    def word(self, at):
        return ctypes.c_uint64.from_buffer(self.memory, HEAD + at).value

    def set(self, at, value):
        # In one store: struct.pack_into would write zeros first, which konkordia may read.
        ctypes.c_uint64.from_buffer(self.memory, HEAD + at).value = value

    def frame(self, image, pixels, came, /, **wrong):
        """A frame and its entry; `came` are masks of the tiles; `wrong` changes a field of the entry."""
        wait(lambda: self.written - self.word(RELEASED) < self.slots)
        slot = self.start + self.written % self.slots * self.slot_bytes
        block = shuffled(pixels) + b"".join(mask.to_bytes(64, "little") for mask in came)
        self.memory[HEAD + slot : HEAD + slot + len(block)] = block
        missing = TILES * TILE_PACKETS - sum(mask.bit_count() for mask in came)
        fields = {"sequence": self.written + 1, "image": image, "slot": slot, "bytes": self.image_bytes, "missing": missing, "tiles": TILES, "version": 1}
        entry = struct.pack("<QQQIHBB", *(fields | wrong).values())
        at = HEAD + self.ring + 128 + self.written % self.slots * 32
        self.memory[at : at + 32] = entry
        self.written += 1
        self.placed += sum(mask.bit_count() for mask in came)
        self.set(self.ring, self.written)

    def end(self, **counts):
        """Waits until konkordia says that the run is over, and ends."""
        wait(lambda: self.word(STOP) == 1)
        counts = {"taken": self.placed, "placed": self.placed} | counts
        self.set(LINE, counts["taken"])
        self.set(PACKETS, counts["placed"])
        self.set(CLOCKS, 12345)
        self.set(STATE, 2)

    def close(self):
        self.memory.close()
        os.close(self.file)


class Run:
    """`konkordia card` and the card beside it."""

    def __init__(self, folder, calibration, *options):
        self.folder = folder
        command = [BINARY, "card", "-o", folder / "run", "--program", PROGRAM, *of_detector(calibration)]
        command += ["--json", *(() if "--silence" in options else ("--silence", 1)), *options]
        self.process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.address = json.loads(self.process.stdout.readline())["address"]
        self.card = Card(self.address)

    def finish(self):
        out, self.errors = self.process.communicate(timeout=60)
        self.card.close()
        assert "panicked" not in self.errors
        lines = [json.loads(line) for line in out.splitlines()]
        # A failure is reported as JSON too.
        self.errors += "".join(" ".join(map(str, line["error"].values())) for line in lines if line["event"] == "error")
        self.account = next((line for line in lines if line["event"] == "card"), None)
        return self.process.returncode


def of_detector(calibration):
    return ["--address", "10.1.2.3", "--calibration", calibration, "--energy-kev", ENERGY_KEV]


@pytest.fixture(scope="module")
def calibration(tmp_path_factory):
    """The calibration of a simulated module, with pixels that are not usable."""
    folder = tmp_path_factory.mktemp("calibration")
    program("simulate", "jungfrau", "--to", "127.0.0.1:1", "--write-calibration", folder, check=0)
    planes = {name: np.fromfile(folder / name, np.float32) for name in ("pedestal_g0.f32", "gain_adu_per_kev.f32")}
    planes["pedestal_g0.f32"][[7, 4096, 524287]] = 0, np.nan, 16383
    planes["gain_adu_per_kev.f32"][[9, 524288 + 11]] = -1, 0
    for name, plane in planes.items():
        plane.tofile(folder / name)
    return folder


@pytest.fixture
def run(tmp_path, calibration):
    runs = []

    def begin(*options):
        runs.append(Run(tmp_path, calibration, *options))
        return runs[-1]

    yield begin
    for one in runs:
        one.process.kill()
        one.process.communicate()


def pixels(image, dtype="<i2"):
    return np.random.default_rng(image).poisson(3, ROWS * COLUMNS).astype(dtype)


def stored(folder):
    with h5py.File(folder / "run_master.h5") as file:
        data = file["/entry/data"]
        return data[data.attrs["signal"]][()]


@pytest.mark.parametrize("kind", ["int16", "uint16"])
def test_frames_become_a_file(run, tmp_path, kind):
    one = run("--images", 20, "--slots", 3, "--first-frame", 7, "--pixel", kind)
    assert one.card.first == 7 and one.card.slots == 3 and one.card.is_unsigned == (kind == "uint16")
    for image in range(20):
        one.card.frame(image, pixels(image), (ALL, ALL))
    one.card.end()
    assert one.finish() == 0, one.errors
    images = stored(tmp_path)
    assert images.dtype == kind and images.shape == (20, ROWS, COLUMNS)
    for image in range(20):
        assert np.array_equal(images[image].ravel(), pixels(image)), image
    account = one.account
    assert account["balances"] and account["images"]["complete"] == 20 and account["clocks"] == 12345
    program("check", tmp_path / "run_master.h5", check=0)
    with h5py.File(tmp_path / "run_master.h5") as file:
        assert file["/entry/instrument/beam/incident_energy"][()] == pytest.approx(12400)


def test_missing_packets_and_lost_frames_are_in_the_account(run, tmp_path):
    """A frame with missing packets is partial, one without an entry is lost, also behind the last one that came."""
    one = run("--images", 6)
    for image, came in ((0, (ALL, ALL)), (1, (ALL ^ 2, ALL)), (3, (0, ALL ^ 1))):
        frame = pixels(image)
        for packet in range(TILES * TILE_PACKETS):
            if not came[packet // TILE_PACKETS] >> packet % TILE_PACKETS & 1:
                frame[packet * 4096 : (packet + 1) * 4096] = MISSING
        one.card.frame(image, frame, came)
    one.card.end()
    assert one.finish() == 1, one.errors
    account = one.account
    assert account["images"] == {"complete": 1, "partial": 2, "lost": 3, "beyond": 0, "packets_missing": 66}
    assert account["missing"] == [[1, 1], [3, 65]] and account["balances"]
    images = stored(tmp_path)
    assert (images[2] == MISSING).all() and (images[1].ravel()[4096:8192] == MISSING).all() and (images[1].ravel()[:4096] >= 0).all()
    ledger = json.loads(program("inspect", tmp_path / "run_master.h5", "--json").stdout)["ledger"]
    assert "lost" in json.dumps(ledger)


def test_a_gap_is_lost_also_where_no_number_was_asked_for(run, tmp_path):
    one = run()
    for image in (0, 1, 4):
        one.card.frame(image, pixels(image), (ALL, ALL))
    one.card.end()
    assert one.finish() == 1, one.errors
    assert one.account["images"] == {"complete": 3, "partial": 0, "lost": 2, "beyond": 0, "packets_missing": 0}
    assert stored(tmp_path).shape[0] == 5 and (stored(tmp_path)[2:4] == MISSING).all()


def test_counters_that_contradict_the_frames_are_told(run):
    one = run("--images", 2)
    one.card.frame(0, pixels(0), (ALL, ALL))
    one.card.frame(1, pixels(1), (ALL, ALL))
    one.card.end(placed=9)
    assert one.finish() == 1 and one.account["balances"] is False
    assert one.account["images"]["complete"] == 2


def test_frames_behind_the_last_image_are_counted(run, tmp_path):
    one = run("--images", 2)
    for image in range(3):
        one.card.frame(image, pixels(image), (ALL, ALL))
    one.card.end()
    assert one.finish() == 0, one.errors
    assert one.account["images"]["beyond"] == 1 and stored(tmp_path).shape[0] == 2


@pytest.mark.parametrize(
    "wrong, says",
    [
        ({"sequence": 9}, "number 9, and number 2 comes next"),
        ({"image": 0}, "frame 0 does not come behind frame 0"),
        ({"slot": 1 << 50}, "the offset of the slot"),
        ({"slot": 0}, "the offset of the slot"),
        ({"bytes": 64}, "the bytes of the pixels"),
        ({"tiles": 16}, "the number of tiles"),
        ({"version": 2}, "version 2"),
        ({"missing": 777}, "777 packets are missing in a frame of 128"),
        ({"missing": 1}, "the masks say that 0 packets are missing"),
        ({"image": 1 << 60}, "is more than 64 frames ahead"),
    ],
)
def test_what_cannot_be_is_refused(run, tmp_path, wrong, says):
    """The file has the frames before, and nothing of the wrong one."""
    one = run("--images", 5)
    one.card.frame(0, pixels(0), (ALL, ALL))
    one.card.frame(1, pixels(1), (ALL, ALL), **wrong)
    assert one.finish() == 6, one.errors
    assert says in one.errors.replace("\n", " "), one.errors
    assert one.account["images"]["complete"] == 1 and np.array_equal(stored(tmp_path)[0].ravel(), pixels(0))


def test_masks_of_packets_that_do_not_exist_are_refused(run):
    one = run("--images", 5)
    one.card.frame(0, pixels(0), (ALL, 1 << 300), missing=1)
    assert one.finish() == 6 and "names packet 300" in one.errors


def test_a_ring_that_says_too_much_is_refused(run):
    one = run("--images", 5, "--slots", 4)
    one.card.frame(0, pixels(0), (ALL, ALL))
    one.card.set(one.card.ring, 1000)
    assert one.finish() == 6 and re.search(r"1000 entries; [01] were read, and the queue has 4 places", one.errors)


def test_a_card_that_goes_is_noticed(run, tmp_path):
    one = run("--images", 5)
    one.card.frame(0, pixels(0), (ALL, ALL))
    one.card.memory.close()
    os.close(one.card.file)
    one.card.close = lambda: None
    assert one.finish() == 6 and "has gone in the midst" in one.errors
    assert stored(tmp_path).shape[0] >= 1


def test_silence_and_a_signal_end_a_run(run, tmp_path):
    one = run("--overwrite")
    for image in range(3):
        one.card.frame(image, pixels(image), (ALL, ALL))
    one.card.end()
    assert one.finish() == 0 and one.account["images"]["complete"] == 3
    one = run("--overwrite", "--silence", 60)
    one.card.frame(0, pixels(0), (ALL, ALL))
    wait(lambda: one.card.word(RELEASED) == 1)
    one.process.send_signal(signal.SIGINT)
    one.card.end()
    assert one.finish() == 130 and stored(tmp_path).shape[0] == 1


def test_without_a_card_there_is_an_end(tmp_path, calibration):
    done = program("card", "-o", tmp_path / "none", *of_detector(calibration), "--timeout", 0.5, check=6)
    assert "no card has begun within 0.5 s" in done.stderr


def test_registers_tables_and_constants(run, calibration):
    """What the card is told, against the tables and constants that the tests of the logic make themselves."""
    one = run("--images", 1, "--port", 4000)
    card, expected = one.card, shipped()[PROGRAM]
    rows, rows_at, constants, constants_at = struct.unpack_from("<4Q", card.memory, HEAD + 64)
    unit_log2, owners = expected.owners()
    table = list(struct.iter_unpack("<IIQ", card.bytes(rows_at, 16 * rows)))
    assert sorted(table) == sorted(expected.tables() + owners) and len(table) == len(set(table))
    pedestals = np.array([np.fromfile(calibration / f"pedestal_g{stage}.f32", np.float32) for stage in range(3)])
    gains = np.fromfile(calibration / "gain_adu_per_kev.f32", np.float32).reshape(3, -1)
    planes, shifts = quantise(pedestals, factors_of(pedestals, gains, ENERGY_KEV))
    assert card.bytes(constants_at, constants) == packed_constants(planes)
    found = dict(zip(LOGIC_NAMES, struct.unpack_from(f"<{len(LOGIC_NAMES)}Q", card.memory, HEAD + LOGIC), strict=True))
    wanted = {name: value for name, value in expected.registers().items() if name != "base"}
    wanted |= {"unit_log2": unit_log2, "ip_version": 4, "address_low": 0x0A010203, "address_high": 0, "port_first": 4000, "streams": TILES}
    wanted |= {"high_gain": 0, "shifts": shifts[0] | shifts[1] << 6 | shifts[2] << 12}
    assert found == wanted
    card.frame(0, pixels(0), (ALL, ALL))
    card.end()
    assert one.finish() == 0, one.errors


def test_unusable_pixels_are_in_the_mask_of_the_file(run, tmp_path, calibration):
    one = run("--images", 1)
    one.card.frame(0, pixels(0), (ALL, ALL))
    one.card.end()
    assert one.finish() == 0, one.errors
    with h5py.File(tmp_path / "run_master.h5") as file:
        mask = file["/entry/instrument/detector/pixel_mask"][()].ravel()
    pedestal = np.fromfile(calibration / "pedestal_g0.f32", np.float32)
    gain = np.fromfile(calibration / "gain_adu_per_kev.f32", np.float32)[: ROWS * COLUMNS]
    bad = ~((pedestal > 0) & (pedestal < 16383)) | ~(np.isfinite(gain) & (gain > 0))
    assert np.array_equal(mask != 0, bad) and set(np.flatnonzero(bad)) >= {7, 9, 4096, 524287}


def test_a_configuration_says_the_same(tmp_path, calibration):
    """Without a program, the card gets that of the detector of the configuration."""
    config = tmp_path / "run.toml"
    planes = [str(calibration / f"pedestal_g{stage}.f32") for stage in range(3)]
    config.write_text(
        f"""
        detector = {{ type = "jungfrau", interfaces = 2, energy_kev = {ENERGY_KEV} }}
        source = {{ first_port = 4000 }}
        output = {{ directory = ".", prefix = "run" }}
        calibration = {{ kind = "files", pedestal = {json.dumps(planes)}, gain = "{calibration}/gain_adu_per_kev.f32" }}
        """
    )
    memories = []
    for options in (("--config", config), ("--program", PROGRAM, "--port", 4000, "--calibration", calibration, "--energy-kev", ENERGY_KEV)):
        command = [BINARY, "card", "-o", tmp_path / "run", "--address", "fd00::2", "--json", *options]
        with subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True) as process:
            line = process.stdout.readline()
            process_id, file, _ = json.loads(line)["address"].split("/")
            memories.append(pathlib.Path(f"/proc/{process_id}/fd/{file}").read_bytes()[HEAD:])
            process.kill()
    assert memories[0] == memories[1]
    assert struct.unpack_from("<Q", memories[0], LOGIC + 8 * LOGIC_NAMES.index("ip_version")) == (6,)


def test_what_the_card_cannot_do(tmp_path, calibration):
    own = program("bridge", "show", PROGRAM, "--toml", check=0).stdout
    programs = {
        "slots": own.replace("slots = 64", "slots = 32"),
        "swapped": own.replace("offset = 0\n\n", "offset = 1\n\n").replace("offset = 524288", "offset = 0").replace("offset = 1\n", "offset = 524288\n"),
        "wrong": own.replace("window_frames = 8", "window_frames = 800"),
    }
    for name, text in programs.items():
        (tmp_path / f"{name}.toml").write_text(text)
    detector = of_detector(calibration)
    for options, code, says in (
        ((*detector, "--slots", 5000), 2, "at most 2048"),
        ((*detector, "--images", 0), 2, "at least one image"),
        ((*detector, "--program", PROGRAM, "--port", 65535), 2, "above 65535"),
        ((*detector, "--program", tmp_path / "slots.toml"), 2, "32 slots and a window of 8 frames; the logic has 64 and 8"),
        ((*detector, "--program", tmp_path / "swapped.toml"), 3, "packet 0 of tile 0 lies elsewhere"),
        ((*detector, "--program", tmp_path / "wrong.toml"), 3, "write 1 to 64"),
        ((*detector, "--program", "eiger-4bit"), 3, "does not say which detector"),
        ((*detector[:2], "--energy-kev", 12.4), 3, "photons without calibration"),
        (detector[:4], 3, "energy"),
        ((*detector[:2], "--calibration", tmp_path / "none", "--energy-kev", 12.4), 3, "cannot read the calibration"),
    ):
        done = program("card", "-o", tmp_path / "out" / "none", *options, check=code)
        assert says in " ".join(done.stderr.split()), done.stderr
    assert not (tmp_path / "out").exists()
