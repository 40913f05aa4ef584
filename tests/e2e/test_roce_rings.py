"""Frames that are written by RoCEv2, received through rings, which show the headers that the iCRC covers: a wire between two
network namespaces, no card. The packets made by hand have iCRCs by zlib."""

import ipaddress
import socket
import struct
import time
import zlib

import numpy as np
import pytest
from driving import Bench, Master, balanced
from network import CARD, CARD_MAC, DETECTOR, possible, wire  # noqa: F401  a fixture
from test_roce_frames import MEMORY, OPTIONS, PACKETS, datagram, frames  # noqa: F401  a fixture

RINGS = ["packet", "xdp"]
CARD_V6, DETECTOR_V6 = "fd08::2", "fd08::1"
PORT = 4791


def configured(bench, backend, images, modules=1, address=CARD):
    source = {"kind": "roce", "receive": backend, "receive_buffer_mib": 32, **MEMORY}
    tables = {"detector": {"type": "jungfrau", "modules": modules}, "run": {"images": images, "stall_timeout_s": 5}}
    path = bench.config(source=source, processing={"dtype": "raw"}, **tables)
    path.write_text(path.read_text().replace('"127.0.0.1"', f'"{address}"').replace(f"first_port = {bench.port}", f"first_port = {PORT}"))
    return path


def receiving(tmp_path, wire, backend, *arguments, **options):
    bench = Bench(tmp_path)
    config = configured(bench, backend, *arguments, **options)
    with wire.card.entered():
        receiver = possible(backend, lambda: bench.receive(config))
    armed = receiver.events[-1]["receive"]
    assert armed["backend"] == backend and "the iCRC of each packet is compared" in armed["why"], armed
    return bench, receiver


def sent_by_simulator(wire, raw, *options):
    return wire.send(PORT, "jungfrau", "--roce", *OPTIONS, "--raw", raw, *options)


@pytest.mark.parametrize("backend", RINGS)
def test_the_words_are_where_they_were_written(tmp_path, wire, frames, backend):  # noqa: F811
    """Two queue pairs. That every packet is placed shows that the simulator's iCRCs suit what the kernel sends."""
    words, raw = frames
    bench, receiver = receiving(tmp_path, wire, backend, 16, modules=2)
    sent = sent_by_simulator(wire, raw, "--modules", "2", "--images", "16", "--rate", "8", "--first-psn", str((1 << 24) - 900))
    code, report = receiver.finish()
    balanced(code, report)
    assert code == 0 and report["total"]["placed"] == sent["packets_sent"] == 16 * 2 * PACKETS, report
    assert report["receive"]["refused"] == {} and report["receive"]["dropped"] == {}, report["receive"]
    assert [stream["placed"] for stream in report["streams"]] == [16 * PACKETS] * 2
    assert np.array_equal(Master(bench.master).images, np.concatenate([words] * 2))


@pytest.mark.parametrize("backend", RINGS)
def test_no_damaged_packet_is_written(tmp_path, wire, frames, backend):  # noqa: F811
    words, raw = frames
    bench, receiver = receiving(tmp_path, wire, backend, 16, modules=2)
    options = ["--corrupt", "0.02", "--loss", "0.01", "--duplicate", "0.01", "--reorder", "0.01"]
    sent = sent_by_simulator(wire, raw, "--modules", "2", "--images", "16", "--rate", "8", *options)
    code, report = receiver.finish()
    balanced(code, report)
    faults, total = sent["faults"], report["total"]
    assert faults["payload_corrupted"] > 100 and faults["lost"] > 50, faults
    assert total["malformed_icrc"] == faults["payload_corrupted"], (total, faults)
    assert total["received"] == sent["packets_sent"] and total["malformed_access"] == total["malformed_version"] == 0, total
    assert report["images"]["partial"] == 16 and 0 < report["images"]["packets_missing"] <= faults["lost"] + faults["payload_corrupted"]
    images = Master(bench.master).images
    missing = images == 0xFFFF
    assert np.array_equal(np.where(missing, 0, images), np.where(missing, 0, np.concatenate([words] * 2)))
    assert 0 < missing.sum() <= 2048 * report["images"]["packets_missing"] and missing.sum() % 2048 == 0


def framed(packet, tags=(), *, is_v6=False, identification=0, flags=0x4000, sealed=True, options=b""):
    """An Ethernet frame with a packet of RoCEv2, whose last 4 bytes become its iCRC."""
    udp_bytes = 8 + len(packet)
    udp = struct.pack(">HHHH", 49152, PORT, udp_bytes, 0)
    if is_v6:
        ends = b"".join(ipaddress.ip_address(a).packed for a in (DETECTOR_V6, CARD_V6))
        ip = struct.pack(">IHBB", 6 << 28 | 0xABCDE, udp_bytes, 17, 64) + ends
        covered = struct.pack(">IHBB", 0x6FFFFFFF, udp_bytes, 17, 0xFF) + ends
    else:
        ends = b"".join(ipaddress.ip_address(a).packed for a in (DETECTOR, CARD))
        words, ip_bytes = 5 + len(options) // 4, 20 + len(options) + udp_bytes
        ip = struct.pack(">BBHHHBBH", 0x40 | words, 2, ip_bytes, identification, flags, 64, 17, 0) + ends + options
        total = sum(struct.unpack(f">{len(ip) // 2}H", ip))
        total = (total & 0xFFFF) + (total >> 16)
        ip = ip[:10] + struct.pack(">H", ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF) + ip[12:]
        covered = struct.pack(">BBHHHBBH", 0x45, 0xFF, ip_bytes, identification, flags, 0xFF, 17, 0xFFFF) + ends
    covered = b"\xff" * 8 + covered + udp[:6] + b"\xff\xff" + packet[:4] + b"\xff" + packet[5:-4]
    if sealed:
        packet = packet[:-4] + struct.pack("<I", zlib.crc32(covered))
    frame = bytes.fromhex(CARD_MAC.replace(":", "")) + bytes([2, 0, 0, 0, 0, 1])
    frame += b"".join(b"\x81\x00" + struct.pack(">H", tag) for tag in tags) + (b"\x86\xdd" if is_v6 else b"\x08\x00")
    return (frame + ip + udp + packet).ljust(60, b"\0")


@pytest.fixture
def cable(wire):  # noqa: F811
    """Sends whole frames from the detector's end."""
    with wire.detector.entered():
        sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
        sender.bind(("det", 0))
    with sender:
        yield sender


@pytest.mark.parametrize("is_v6", [False, True], ids=["ipv4", "ipv6"])
@pytest.mark.parametrize("backend", RINGS)
def test_packets_made_by_hand_get_the_verdict_that_they_deserve(tmp_path, wire, cable, backend, is_v6):  # noqa: F811
    """Frames with identifications, and tags of a priority. Whatever is changed behind the iCRC, no packet is written."""
    wire.card.ip(f"address add {CARD_V6}/64 dev card nodad")
    bench, receiver = receiving(tmp_path, wire, backend, 2, address=CARD_V6 if is_v6 else CARD)
    other = framed(datagram(0, 1, 1), is_v6=is_v6, identification=7)
    at = other.index(datagram(0, 1, 1)[:12])  # where the packet begins

    def changed(position, of=other):
        return of[:position] + bytes([of[position] ^ 0x10]) + of[position + 1 :]

    hostile = {
        # Not sealed; opcode to another one that exists; partition; queue pair; number; address; key; payload; iCRC.
        "malformed_icrc": [
            framed(datagram(0, 1, 1), is_v6=is_v6, sealed=False),
            *(changed(at + n) for n in (2, 6, 11, 19, 20, 28, 2000, len(other) - at - 1)),
            *([] if is_v6 else [framed(datagram(0, 1, 1), sealed=False, identification=1)]),
        ],
        # Of queue pairs, keys and pages of nobody, with a right iCRC: as behind sockets.
        "malformed_access": [
            framed(datagram(0, 1, 1, queue_pair=701), is_v6=is_v6),
            framed(datagram(0, 1, 1, queue_pair=3), is_v6=is_v6),
            framed(datagram(0, 1, 1, key=9), is_v6=is_v6),
            framed(datagram(0, 1, 1, address=0), is_v6=is_v6),
        ],
        "malformed_length": [framed(b"\x2a\x40" + bytes(9), is_v6=is_v6, sealed=False), framed(b"", is_v6=is_v6, sealed=False)],
        "malformed_version": [framed(datagram(0, 1, 1, opcode=0xFF), is_v6=is_v6)],
    }
    for frame in range(2):
        for packet in range(PACKETS):
            tags = [0xE000] if packet % 3 == 0 else []
            number = frame * PACKETS + packet
            cable.send(framed(datagram(frame, packet, number), tags, is_v6=is_v6, identification=number))
            if (frame, packet) == (0, 100):
                for bad in (bad for kind in hostile.values() for bad in kind):
                    cable.send(bad)
            if packet % 16 == 0:
                time.sleep(0.005)
    code, report = receiver.finish()
    balanced(code, report)
    total = report["total"]
    assert {name: total[name] for name in hostile} == {name: len(kind) for name, kind in hostile.items()}, total
    assert report["images"]["complete"] == 2 and total["placed"] == 2 * PACKETS, report
    images = Master(bench.master).images
    assert (images[0] == 0).all() and (images[1] == 0x0101).all()
    assert report["receive"]["refused"] == {}, report["receive"]


def test_what_only_the_ordinary_socket_gets_is_refused_and_named(tmp_path, wire, cable):  # noqa: F811
    """Behind IP options AF_XDP takes nothing, and the socket shows no header."""
    bench, receiver = receiving(tmp_path, wire, "xdp", 1)
    for _ in range(3):
        cable.send(framed(datagram(0, 1, 1), options=b"\x01\x01\x01\x00"))
    for packet in range(PACKETS):
        cable.send(framed(datagram(0, packet, packet)))
        if packet % 16 == 0:
            time.sleep(0.005)
    code, report = receiver.finish()
    balanced(code, report)
    assert code == 0 and report["total"]["received"] == PACKETS and report["receive"]["refused"] == {"headerless": 3}, report
