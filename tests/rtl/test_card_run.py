"""A whole run of the simulated card: packets of a simulated JUNGFRAU through the logic of rtl/ into memory of `konkordia
card`, LZ4 there, and the file, beside `konkordia receive` with the same packets and arithmetic = "fixed"."""

import contextlib
import json
import os
import pathlib
import random
import shutil
import socket
import subprocess
import sys
import threading

import h5py
import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/e2e"), str(ROOT / "rtl/tests")]
from blocks import sources  # noqa: E402
from card_setup import ethernet, write_frames  # noqa: E402
from driving import (  # noqa: E402
    BINARY,
    LYSO,
    MASKED,
    MISSING,
    Bench,
    Master,
    PacedSocket,
    lyso_raw,
    needs_lyso,
    program,
    simulate,
)
from model_udp import ADDRESS_V4, random_frame  # noqa: E402
from program import shipped  # noqa: E402

import model_udp  # noqa: E402

FRAMES = 10
ENERGY_KEV = 12.4
BUILD = pathlib.Path(os.environ.get("RTL_BUILD", ROOT / "rtl/build")) / "card_main"
PROGRAM = shipped()["jungfrau-1"]

pytestmark = pytest.mark.skipif(not shutil.which("verilator"), reason="Verilator is not there; to have it:  scripts/setup rtl")


@pytest.fixture(scope="module")
def simulator():
    """The program of the simulated card."""
    main = ROOT / "rtl/card/main.cpp"
    command = ["verilator", "--cc", "--exe", "--build", "-O3", "-CFLAGS", "-O2 -std=c++17 -Wall -Wextra -Werror=return-type", "-Wno-fatal"]
    command += [f"-I{ROOT}/rtl/src", "--top-module", "card", "-Mdir", str(BUILD), *map(str, sources("card")), str(main), "-o", "card"]
    BUILD.parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    return BUILD / "card"


def sent_by_the_detector(*options):
    """The datagrams that a simulated JUNGFRAU of one module sends."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taker:
        taker.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 20)
        taker.bind(("127.0.0.1", 0))
        taker.settimeout(3)

        def take():
            with contextlib.suppress(TimeoutError):
                while True:
                    found.append(taker.recv(10000))

        thread = threading.Thread(target=take)
        thread.start()
        to = f"127.0.0.1:{taker.getsockname()[1]}"
        report = simulate("jungfrau", "--to", to, "--rate", 20, "--images", FRAMES, "--seed", 5, *options)
        thread.join()
    return found, report


@pytest.fixture(scope="module")
def detector(tmp_path_factory):
    """Calibration of the detector, and all packets of ten frames."""
    folder = tmp_path_factory.mktemp("detector")
    program("simulate", "jungfrau", "--to", "127.0.0.1:1", "--write-calibration", folder, check=0)
    datagrams, _ = sent_by_the_detector()
    assert len(datagrams) == FRAMES * 128
    return folder, datagrams


def received(folder, calibration, datagrams):
    """The images that the program itself makes of these packets."""
    bench = Bench(folder)
    config = bench.config(
        detector={"type": "jungfrau", "energy_kev": ENERGY_KEV},
        calibration={
            "kind": "files",
            "pedestal": [str(calibration / f"pedestal_g{stage}.f32") for stage in range(3)],
            "gain": str(calibration / "gain_adu_per_kev.f32"),
        },
        processing={"arithmetic": "fixed", "dtype": "int16"},
        run={"images": FRAMES, "stall_timeout_s": 3},
    )
    receiver = bench.receive(config)
    with PacedSocket() as sender:
        for datagram in datagrams:
            sender.sendto(datagram, ("127.0.0.1", bench.port))
    _, report = receiver.finish()
    assert report["balances"], report
    return Master(bench.master).images, report


def run_of_card(folder, simulator, calibration, frames, *options, seed="", images=FRAMES, kill=False):
    """One run; returns the account, the exit code of konkordia and what the simulation says."""
    line = write_frames(folder / "frames.bin", frames)
    command = [BINARY, "card", "-o", str(folder / "card"), "--images", str(images), "--first-frame", "1", "--silence", "4", "--json", *options]
    command += ["--address", str(ADDRESS_V4), "--calibration", str(calibration), "--energy-kev", str(ENERGY_KEV)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as taker:
        address = json.loads(taker.stdout.readline())["address"]
        card = subprocess.Popen([simulator, line, address, *filter(None, [seed])], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if kill:
            while not (folder / "card_data_000001.h5").exists() and card.poll() is None:
                pass
            card.kill()
        out, errors = taker.communicate(timeout=600)
        said, complaint = card.communicate(timeout=60)
    assert kill or card.returncode == 0, complaint
    lines = [json.loads(text) for text in out.splitlines()]
    errors += "".join(str(line["error"]) for line in lines if line["event"] == "error")
    account = next(line for line in lines if line["event"] == "card")
    return account, taker.returncode, json.loads(said) if said else None, errors


def number(datagram):
    """Frame from 0 and packet."""
    return int.from_bytes(datagram[:8], "little") - 1, int.from_bytes(datagram[12:16], "little")


def images_of(folder):
    with h5py.File(folder / "card_master.h5") as file:
        data = file["/entry/data"]
        return data[data.attrs["signal"]][()]


def test_ten_frames_from_packets_to_the_file(tmp_path, simulator, detector):
    """Every pixel is the one that the program makes of the same packets."""
    calibration, datagrams = detector
    model_udp.PORT_FIRST, model_udp.STREAMS = PROGRAM.port_first, 1
    account, code, simulated, errors = run_of_card(tmp_path, simulator, calibration, [ethernet(d, 0) for d in datagrams])
    assert code == 0 and account["balances"], (account, errors)
    assert account["images"] == {"complete": FRAMES, "partial": 0, "lost": 0, "beyond": 0, "packets_missing": 0}
    assert account["packets"]["placed"] == account["line"]["taken"] == FRAMES * 128
    expected, _ = received(tmp_path, calibration, datagrams)
    images = images_of(tmp_path)
    assert images.shape == (FRAMES, 512, 1024) and images.dtype == np.int16
    assert np.array_equal(images, expected)
    assert len(np.unique(images)) > 100 and not np.array_equal(images[0], images[1])
    program("check", tmp_path / "card_master.h5", check=0)
    # Behind the first frame, which has to come whole, a frame takes its beats and the way through one block.
    between = np.diff(simulated["entries_at"])
    print(f"card: {simulated['line_bytes']} bytes of the line in {simulated['line_clocks']} clocks; from entry to entry {between.min()} to {between.max()} clocks for {16384 * 64} bytes")


@needs_lyso
def test_real_frames_have_no_other_bit(tmp_path, simulator):
    """Ten frames of lysozyme with their own calibration: every pixel is the one that the program makes of them."""
    datagrams, _ = sent_by_the_detector("--raw", *lyso_raw())
    assert len(datagrams) == FRAMES * 128
    model_udp.PORT_FIRST, model_udp.STREAMS = PROGRAM.port_first, 1
    account, code, _, errors = run_of_card(tmp_path, simulator, LYSO, [ethernet(d, 0) for d in datagrams])
    assert code == 0 and account["images"]["complete"] == FRAMES, (account, errors)
    expected, _ = received(tmp_path, LYSO, datagrams)
    images = images_of(tmp_path)
    assert images.shape == (FRAMES, 512, 1024) and np.count_nonzero(images != expected) == 0
    # Photons, and pixels that the calibration masks.
    assert (images > 10).any() and (images == MASKED["int16"]).any()


def test_lost_packets_and_a_bad_line(tmp_path, simulator, detector):
    """Lost packets are missing pixels, and a lost frame is a lost image, as for the program; frames of the line that are
    wrong or foreign change nothing; memory, DMA and line stall at random."""
    calibration, datagrams = detector
    model_udp.PORT_FIRST, model_udp.STREAMS = PROGRAM.port_first, 1
    lost = {(0, 0), (0, 127), (4, 64), (8, 1), (9, 30), (9, 127)}
    kept = [d for d in datagrams if number(d) not in lost and number(d)[0] != 6]
    dice = random.Random(8)
    frames, wrong = [], 0
    for nth, datagram in enumerate(kept):
        if nth % 40 == 7:
            frames.append(ethernet(datagram, 0, udp_bytes_off=1))
            frames.append(random_frame(dice))
            wrong += 2
        if nth % 200 == 9:
            broken = bytearray(ethernet(datagram, 0))
            broken[4000] ^= 4
            frames.append(bytes(broken))
            wrong += 1
        frames.append(ethernet(datagram, 0))
    frames += [ethernet(kept[3], 0), ethernet(kept[9][:12] + (128).to_bytes(4, "little") + kept[9][16:], 0)]
    account, code, _, errors = run_of_card(tmp_path, simulator, calibration, frames, "--slots", "3", seed="11")
    assert code == 1 and account["balances"], (account, errors)
    assert account["images"] == {"complete": 5, "partial": 4, "lost": 1, "beyond": 0, "packets_missing": len(lost)}
    assert account["missing"] == [[0, 2], [4, 1], [8, 1], [9, 2]]
    assert account["line"]["checksum"] > 5 and account["packets"]["malformed_packet_number"] == 1
    assert sum(account["line"].values()) == len(frames) and account["packets"]["placed"] == len(kept)
    expected, report = received(tmp_path, calibration, kept)
    assert report["images"]["packets_missing"] == len(lost) + 128
    images = images_of(tmp_path)
    assert (images[6] == MISSING["int16"]).all() and (images[0, :4] == MISSING["int16"]).all()
    assert np.array_equal(images, expected)


def test_a_card_that_dies(tmp_path, simulator, detector):
    """The file is closed with what came, and the end says why."""
    calibration, datagrams = detector
    model_udp.PORT_FIRST, model_udp.STREAMS = PROGRAM.port_first, 1
    account, code, _, errors = run_of_card(tmp_path, simulator, calibration, [ethernet(d, 0) for d in datagrams], kill=True)
    assert code == 6 and "has gone" in errors
    assert account["images"]["lost"] > 0
    assert images_of(tmp_path).shape[1:] == (512, 1024)
