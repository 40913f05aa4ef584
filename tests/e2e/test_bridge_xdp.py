"""Programs of the bridge in the kernel: AF_XDP receives, and the XDP program looks up the address of each packet. A wire
between two network namespaces, no card."""

import json
import os
import random
import socket
import struct
import subprocess
import time

import pytest
from driving import BINARY, EIGER, needs_eiger, program
from network import CARD, DETECTOR, possible, wire  # noqa: F401  a fixture
from service import Problem

SIZES = {"jungfrau-1": (1, 1), "jungfrau-2": (1, 2), "eiger-4bit": (4, 4), "eiger-8bit": (4, 8), "eiger-16bit": (4, 16), "eiger-32bit": (4, 32)}


class Run:
    """`konkordia bridge run` behind the wire."""

    def __init__(self, wire, name, store, receive, *options):
        self.store = store
        command = [BINARY, "bridge", "run", name, "--store", store, "--receive", receive, "--address", CARD, "--json", *options]
        with wire.card.entered():
            self.process = subprocess.Popen(
                [str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
        said = []
        while "Ctrl-C ends it" not in (line := self.process.stderr.readline()):
            said.append(line)
            if line == "" and self.process.poll() is not None:
                raise Problem("".join(said))

    def finish(self):
        out, err = self.process.communicate(timeout=60)
        return json.loads(out), err

    @property
    def bytes(self):
        return self.store.read_bytes(), self.store.with_name(self.store.name + ".masks").read_bytes()


def sent(wire, name, port, *options):
    detector = "jungfrau" if name.startswith("jungfrau") else "eiger"
    bits = ["--bits", str(SIZES[name][1])] if detector == "eiger" else ["--interfaces", str(SIZES[name][1])]
    return wire.send(port, detector, *bits, "--rate", "25", *options)


def first_port(name):
    return 50010 if name.startswith("jungfrau") else 50020


@pytest.mark.parametrize("name", SIZES)
def test_the_kernel_finds_the_addresses_and_the_store_is_the_same(tmp_path, wire, name):  # noqa: F811
    """Each program that is shipped; the verifier of the kernel takes it, and with the same losses store and masks are
    those of ordinary sockets."""
    stores = []
    for receive in ("socket", "xdp"):
        options = ["--silence", "0.6", "--missing", "pad", "--first-frame", "1"]
        run = possible(receive, lambda r=receive, o=tuple(options): Run(wire, name, tmp_path / r, r, *o))
        assert wire.has_program == (receive == "xdp")
        faults = ["--loss", "0.03", "--duplicate", "0.02", "--reorder", "0.05", "--seed", "7", "--images", "12"]
        simulator = sent(wire, name, first_port(name), *faults)
        said, _ = run.finish()
        packets = said["packets"]
        assert said["packets_received"] == sum(packets.values()) == simulator["packets_sent"], (said, simulator)
        assert packets["duplicate"] > 0 and said["frames"]["partial"] > 0 and said["kernel_dropped"] == 0, said
        assert said["addressed_by_kernel"] == (said["packets_received"] if receive == "xdp" else 0), said
        assert said["refused"] == {}, said
        stores.append((run.bytes, packets, said["frames"]))
    assert stores[0] == stores[1]
    assert not wire.has_program


def ipv4(port, payload, source=40000):
    """An Ethernet frame for the card."""
    udp = struct.pack(">HHHH", source, port, 8 + len(payload), 0)
    head = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(udp) + len(payload), 1, 0x4000, 64, 17, 0, *(bytes(map(int, a.split("."))) for a in (DETECTOR, CARD)))
    total = sum(struct.unpack(">10H", head))
    total = (total & 0xFFFF) + (total >> 16)
    head = head[:10] + struct.pack(">H", ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF) + head[12:]
    return bytes.fromhex("020000000002") + b"\2" * 6 + b"\x08\0" + head + udp + payload


def test_packets_without_an_address_come_the_other_way_and_are_counted(tmp_path, wire):  # noqa: F811
    """What the program in the kernel does not know goes to the ordinary socket, where the same rules say why."""
    run = possible("xdp", lambda: Run(wire, "jungfrau-1", tmp_path / "store", "xdp", "--silence", "0.6", "--first-frame", "1"))
    header = lambda packet, version=2, frame=1: struct.pack("<QII", frame, 0, packet).ljust(46, b"\7") + bytes([3, version])
    with wire.detector.entered():
        raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
        raw.bind(("det", 0))
    pixels = bytes(8192)
    for packet in range(128):
        raw.send(ipv4(50010, header(packet) + pixels))
    tagged = ipv4(50010, header(0, frame=2) + pixels)
    raw.send(tagged[:12] + struct.pack(">HH", 0x8100, 3 << 13) + tagged[12:])  # only a priority
    for wrong in (header(128) + pixels, header(2**32 - 1) + pixels):
        raw.send(ipv4(50010, wrong))
    raw.send(ipv4(50010, header(0, version=1) + pixels))
    raw.send(ipv4(50010, header(1) + pixels[:-1]))
    raw.send(ipv4(50010, b""))
    raw.send(ipv4(50011, header(0) + pixels))  # another port: of nobody
    said, _ = run.finish()
    packets = said["packets"]
    assert packets["placed"] == said["addressed_by_kernel"] == 129, said
    assert (packets["malformed_packet_number"], packets["malformed_required"], packets["malformed_length"]) == (2, 1, 2), said
    assert said["packets_received"] == 134 and said["frames"]["complete"] == 1, said


def test_hostile_headers_are_judged_alike(tmp_path, wire):  # noqa: F811
    """Random bits in good headers: kernel and interpreter agree on every packet, and nothing outside of the slots moves."""
    draw = random.Random(5)
    datagrams = []
    for number in range(3000):
        packet = struct.pack("<QII", 1 + number // 256, 0, number % 64).ljust(46, b"\7") + bytes([1, 2]) + draw.randbytes(4096)
        if draw.random() < 0.4:
            at = draw.choice([*range(8), 12, 13, 14, 15, 46, 47])
            packet = packet[:at] + bytes([draw.getrandbits(8)]) + packet[at + 1 :]
        datagrams.append((50020 + draw.randrange(4), packet))
    stores = []
    for receive in ("socket", "xdp"):
        options = ["--silence", "0.6", "--first-frame", "1"]
        run = possible(receive, lambda r=receive, o=tuple(options): Run(wire, "eiger-16bit", tmp_path / r, r, *o))
        with wire.detector.entered():
            raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
            raw.bind(("det", 0))
        for port in range(50020, 50024):  # each port in turn: both ways read them in their own order
            for to, packet in datagrams:
                if to == port:
                    raw.send(ipv4(port, packet))
        said, _ = run.finish()
        assert said["packets_received"] == 3000, said
        malformed = {name: count for name, count in said["packets"].items() if name.startswith("malformed")}
        stores.append((malformed, said))
    assert stores[0][0] == stores[1][0] and min(stores[0][0]["malformed_required"], stores[0][0]["malformed_packet_number"]) > 20
    kernel = stores[1][1]
    assert kernel["addressed_by_kernel"] == 3000 - sum(stores[1][0].values()), kernel


def test_what_is_not_possible_says_why(tmp_path):
    said = program("bridge", "run", "jungfrau-1", "--store", tmp_path / "s", "--receive", "xdp", check=6).stderr
    assert "AF_XDP cannot use the network interface lo" in said and "--receive socket" in said and "[source]" not in said, said
    assert os.listdir(tmp_path) == []


@needs_eiger
def test_a_capture_of_an_eiger_is_placed_alike(tmp_path, wire):  # noqa: F811
    """Real packets: 5 frames of 128 packets of each half module, 32 bit."""
    captured = {}
    for port in range(50020, 50024):
        data, at, captured[port] = (EIGER / f"{port}.dat").read_bytes(), 0, []
        while at < len(data):
            (length,) = struct.unpack_from("<Q", data, at)
            captured[port].append(data[at + 8 : at + 8 + length])
            at += 8 + length
    first = min(struct.unpack_from("<Q", packet)[0] for packets in captured.values() for packet in packets)
    stores = []
    for receive in ("socket", "xdp"):
        options = ["--silence", "0.6", "--first-frame", str(first), "--missing", "pad"]
        run = possible(receive, lambda r=receive, o=tuple(options): Run(wire, "eiger-32bit", tmp_path / r, r, *o))
        with wire.detector.entered():
            raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
            raw.bind(("det", 0))
        for n in range(640):
            for port, packets in captured.items():
                raw.send(ipv4(port, packets[n]))
            time.sleep(0.0005)
        said, _ = run.finish()
        assert said["packets_received"] == said["packets"]["placed"] == 2560, said
        assert said["addressed_by_kernel"] == (2560 if receive == "xdp" else 0), said
        stores.append((run.bytes, said["frames"], said["packets"]))
    assert stores[0] == stores[1] and stores[0][1]["complete"] == 5
