"""Frames that a simulated detector writes by RoCEv2, from its packets to the file, as a user runs it; h5py reads the file.
All in software: packets of UDP over loopback, no card."""

import json
import socket
import struct
import time

import numpy as np
import pytest

from driving import Bench, Master, balanced, program, simulate

PACKETS = 257
MEMORY = {"queue_pair": 700, "memory_key": 0x1234, "memory_address": 1 << 20, "pages": 16}
OPTIONS = [f"--{name.replace('_', '-')}={value}" for name, value in MEMORY.items()]


def config(bench, images, modules=1, interfaces=1, **tables):
    detector = {"type": "jungfrau", "modules": modules, "interfaces": interfaces, **tables.pop("detector", {})}
    run = {"images": images, "stall_timeout_s": 5, **tables.pop("run", {})}
    source = {"kind": "roce", **MEMORY, **tables.pop("source", {})}
    return bench.config(streams=1, detector=detector, source=source, run=run, processing={"dtype": "raw"}, **tables)


def written(bench, raw, *options):
    return simulate("jungfrau", "--to", f"127.0.0.1:{bench.port}", "--roce", *OPTIONS, "--raw", raw, *options)


@pytest.fixture
def frames(tmp_path):
    """8 frames of 2 modules, each word another, and their file."""
    words = np.random.default_rng(4).integers(0, 1 << 14, (8, 2 * 512, 1024), dtype=np.uint16)
    words.tofile(tmp_path / "raw.u16")
    return words, tmp_path / "raw.u16"


def test_the_words_are_where_they_were_written(tmp_path, frames):
    """Two modules with two interfaces each: four queue pairs at one port. Pages and sequence numbers wrap in the run."""
    words, raw = frames
    bench = Bench(tmp_path)
    receiver = bench.receive(config(bench, 40, modules=2, interfaces=2))
    sent = written(bench, raw, "--modules", "2", "--interfaces", "2", "--images", "40", "--rate", "40", "--first-psn", str((1 << 24) - 900))
    code, report = receiver.finish()
    balanced(code, report)
    assert code == 0 and report["total"]["placed"] == sent["packets_sent"] == 40 * 4 * 129, report
    master = Master(bench.master)
    assert np.array_equal(master.images, np.concatenate([words] * 5))
    columns = master.columns
    assert np.array_equal(columns["sender_frame_number"], np.repeat(np.arange(40)[:, None], 4, axis=1))
    assert (columns["bytes_written"] == 512 * 1024).all()
    assert np.array_equal(columns["timestamp"][:, 0], np.arange(40) * 250_000)


def test_what_is_lost_doubled_and_late_is_accounted_for(tmp_path, frames):
    words, raw = frames
    bench = Bench(tmp_path)
    receiver = bench.receive(config(bench, 40, modules=2))
    sent = written(bench, raw, "--modules", "2", "--images", "40", "--rate", "40", "--loss", "0.01", "--duplicate", "0.01", "--reorder", "0.02")
    code, report = receiver.finish()
    balanced(code, report)
    faults, total = sent["faults"], report["total"]
    assert faults["lost"] > 50 and faults["duplicated"] > 50 and faults["reordered"] > 50
    assert total["received"] == sent["packets_sent"] and total["placed"] == 40 * 2 * PACKETS - faults["lost"]
    assert total["duplicate"] == faults["duplicated"] and total["malformed_access"] == 0, total
    images = Master(bench.master).images
    missing = images == 0xFFFF
    assert np.array_equal(np.where(missing, 0, images), np.where(missing, 0, np.concatenate([words] * 5)))
    # 2048 words in a packet; a lost packet may be the one without pixels.
    assert 0 < missing.sum() <= 2048 * faults["lost"] and missing.sum() % 2048 == 0


def datagram(frame, packet, psn, *, queue_pair=700, key=0x1234, address=None, opcode=None, length=None, payload=None, immediate=None):
    """A packet of a frame of one module, built by hand; its iCRC is not compared behind a socket."""
    is_last = packet == PACKETS - 1
    page = frame % 16
    address = (1 << 20) + page * ((1 << 20) + 4096) + packet * 4096 if address is None else address
    end = struct.pack(">IIIQIQHHQI", 0, psn, 0, 0, 0, 1 << 20, 0, frame, 0, 0).ljust(128, b"\0")
    payload = (end if is_last else bytes([frame]) * 4096) if payload is None else payload
    head = struct.pack(">BBHII", opcode or (0x2B if is_last else 0x2A), 0x40, 0xFFFF, queue_pair, psn)
    head += struct.pack(">QII", address, key, len(payload) if length is None else length)
    if is_last or opcode == 0x2B:
        head += struct.pack(">I", page | (psn & 0xFFFFF) << 12 if immediate is None else immediate)
    return head + payload + bytes(-len(payload) % 4) + b"\0\0\0\0"


def test_packets_for_other_memory_are_refused_by_kind(tmp_path):
    bench = Bench(tmp_path)
    receiver = bench.receive(config(bench, 2))
    hostile = {
        "malformed_access": [
            datagram(0, 1, 1, queue_pair=701),
            datagram(0, 1, 1, key=0x1235),
            datagram(0, 1, 1, address=(1 << 20) - 1),
            datagram(0, 1, 1, address=(1 << 20) + 16 * ((1 << 20) + 4096)),
            datagram(0, 1, 1, address=(1 << 64) - 1),
        ],
        "malformed_packet_number": [
            datagram(0, 1, 1, address=(1 << 20) + 1),
            datagram(0, 1, 1, opcode=0x2B),
            datagram(0, 256, 256, immediate=5 | 256 << 12),
            datagram(0, 256, 256, immediate=0 | 255 << 12),
        ],
        "malformed_length": [
            datagram(0, 1, 1, length=4095),
            datagram(0, 1, 1, payload=bytes(4092)),
            datagram(0, 256, 256, payload=bytes(124)),
            datagram(0, 1, 1)[:-1],
            b"\x2a\x41" + bytes(9),
            b"",
            b"\x2a",
        ],
        # FIRST of a message, RC, SEND, CNP, a version that does not exist.
        "malformed_version": [
            *(datagram(0, 1, 1, opcode=code, payload=bytes(64)) for code in (0x26, 0x0A, 0x24, 0x81, 0xFF)),
            b"\x2a\x41" + datagram(0, 1, 1)[2:],
        ],
    }
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for frame in range(2):
            for packet in range(PACKETS):
                sender.sendto(datagram(frame, packet, frame * PACKETS + packet), ("127.0.0.1", bench.port))
                if (frame, packet) == (0, 100):
                    for bad in (bad for kind in hostile.values() for bad in kind):
                        sender.sendto(bad, ("127.0.0.1", bench.port))
                if packet % 64 == 0:
                    time.sleep(0.005)
    code, report = receiver.finish()
    total = report["total"]
    assert {name: total[name] for name in hostile} == {name: len(kind) for name, kind in hostile.items()}, total
    assert report["images"]["complete"] == 2 and total["placed"] == 2 * PACKETS
    images = Master(bench.master).images
    assert (images[0] == 0).all() and (images[1] == 0x0101).all()


def test_the_plan_says_what_the_detector_has_to_be_told(tmp_path):
    bench = Bench(tmp_path)
    path = config(bench, 5, modules=2)
    text = program("config", "check", path).stdout
    assert f"127.0.0.1:{bench.port}\n" in text and f"{bench.port} to" not in text
    assert "queue pairs 700 to 701, key 4660, from address 0x100000 on: 16 pages of 1 052 672 bytes" in text, text
    plan = json.loads(program("config", "check", "--json", path).stdout)
    memory = {"queue_pair": 700, "key": 0x1234, "address": 1 << 20, "pages": 16, "page_bytes": 1052672, "path_mtu": 4096}
    assert plan["memory"] == memory, plan


@pytest.mark.parametrize(
    ("tables", "part"),
    [
        ({"source": {"path_mtu": 1500}}, "no path MTU of 1500"),
        ({"source": {"path_mtu": 2048}}, "2048 bytes of payload make 513 packets of a frame"),
        ({"detector": {"rows": 256}}, "partial readout"),
        ({"run": {"first_frame": 7}}, "first_frame with kind"),
        ({"source": {"kind": "udp"}}, "source.queue_pair: only with kind"),
        ({"source": {"pages": 1}}, "pages"),
    ],
)
def test_what_is_not_possible_is_refused(tmp_path, tables, part):
    done = program("config", "check", config(Bench(tmp_path), 5, **tables), check=3)
    assert part in done.stderr and "fix: " in done.stderr, done.stderr
