"""RoCEv2 against scapy 2.6.1 (`scapy.contrib.roce`, which makes the iCRC too), in a process of its own.

Our packets are taken apart by scapy and built again from the fields that it found: they must be the same bytes. And
packets that scapy has built go through our responder: the memory must be what was meant.
"""

import json
import pathlib
import subprocess
import sys

import pytest
from examples_of_ours import example
from roce_capture import BASE, FILL, FIRST, KEY, QUEUE_KEY, REGION_BYTES, extensions, packets_of_ours, parts, pixels

HELPER = pathlib.Path(__file__).resolve().parent / "roce_by_scapy.py"


def scapy(*arguments):
    done = subprocess.run([sys.executable, HELPER, *map(str, arguments)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout)


def ours(*arguments):
    program = example("konkordia-fabric", "roce_pcap")
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-4000:]
    return [line.split() for line in done.stdout.splitlines()]


def played(tmp_path, packets):
    """Builds the packets with scapy and gives them to our responder; returns verdicts, other lines, and its memory."""
    described, capture, image = tmp_path / "packets.json", tmp_path / "scapy.pcap", tmp_path / "image"
    described.write_text(json.dumps(packets))
    scapy("build", described, capture)
    lines = ours("play", capture, image)
    assert ["packets", str(len(packets)), "balanced", "true"] in lines
    return [line[1] for line in lines if line[0] == "verdict"], lines, image.read_bytes()


def memory(*pieces):
    """The region with these (offset, bytes) written one after the other."""
    image = bytearray([FILL]) * REGION_BYTES
    for offset, content in pieces:
        image[offset : offset + len(content)] = content
    return bytes(image)


def write(psn, opcode, content, *, address=None, length=None, immediate=None, qpn=0x11, key=KEY, **more):
    """A packet of a WRITE; `address` = offset in the region, if it has an RETH."""
    reth = None if address is None else [BASE + address, key, len(content) if length is None else length]
    return {"opcode": opcode, "qpn": qpn, "psn": psn & 0xFFFFFF, "reth": reth, "immediate": immediate, "payload": content.hex(), **more}


def test_our_packets_are_those_of_scapy(tmp_path):
    """Every packet that we make is what scapy builds of the fields that it finds there, iCRC included; IPv4 and IPv6."""
    capture = tmp_path / "ours.pcap"
    ours("make", capture)
    found = scapy("compare", capture)
    assert [frame["opcode"] for frame in found if not frame["same"]] == []
    # A comparison that cannot fail proves nothing: another payload byte needs another iCRC.
    damaged = bytearray(capture.read_bytes())
    damaged[24 + 16 + 14 + 20 + 8 + 12 + 16 + 3] ^= 1
    capture.write_bytes(damaged)
    assert [n for n, frame in enumerate(scapy("compare", capture)) if not frame["same"]] == [0]
    expected = packets_of_ours()
    assert len(found) == len(expected)
    for n, (frame, packet) in enumerate(zip(found, expected, strict=True)):
        payload = packet["payload"]
        rest = extensions(packet) + payload + bytes(-len(payload) % 4)
        names = ("opcode", "qpn", "psn", "version")
        assert [frame[name] for name in names] == [packet[name] for name in names], n
        assert (frame["rest"], frame["pad"]) == (rest.hex(), -len(payload) % 4), n
    acknowledged = [(frame["syndrome"], frame["msn"]) for frame in found if frame["opcode"] == 0x11]
    assert acknowledged == [(0x1F, 0x010203), (0x60, 0x010203), (0x2E, 0x010203)]


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("lost", [None, 0, 1, 2, 3])
def test_packets_of_scapy_fill_our_memory(tmp_path, lost, version):
    """One message and four: without a packet, the memory is what arrived (four) or what came before (one message)."""
    content = pixels(1000)
    pieces = parts(content)
    one = [
        write(FIRST, 0x26, pieces[0], address=0, length=1000, version=version),
        write(FIRST + 1, 0x27, pieces[1], version=version),
        write(FIRST + 2, 0x27, pieces[2], version=version),
        write(FIRST + 3, 0x29, pieces[3], immediate=0xCAFE0001, version=version),
    ]
    four = [write(FIRST + 4 + n, 0x2A, part, address=0x2000 + 256 * n, version=version) for n, part in enumerate(pieces[:3])]
    four.append(write(FIRST + 7, 0x2B, pieces[3], address=0x2300, immediate=0xCAFE0002, version=version))
    sent = [packet for n, packet in enumerate(one) if n != lost] + [packet for n, packet in enumerate(four) if n != lost]
    verdicts, lines, image = played(tmp_path, sent)
    before = 4 if lost is None else lost
    arrived = [(0x2000 + 256 * n, part) for n, part in enumerate(pieces) if n != lost]
    assert image == memory(*[(256 * n, part) for n, part in enumerate(pieces[:before])], *arrived)
    told = [line[2] for line in lines if line[0] == "completion"]
    assert told == (["cafe0001"] if lost is None else []) + (["cafe0002"] if lost != 3 else [])
    assert verdicts.count("out_of_sequence") == (0 if lost is None else 3 - lost)


def test_a_pair_of_scapys_senders_and_what_is_wrong(tmp_path):
    """RC is answered; datagrams need their key; wrong keys, addresses, iCRCs, tags and short frames."""
    content = pixels(100)
    datagram = {"opcode": 0x65, "qpn": 0x13, "psn": 0, "deth": [QUEUE_KEY, 0xABC], "immediate": 7, "payload": content.hex()}
    sent = [
        write(FIRST, 0x0B, content, address=0, immediate=5, qpn=0x12, ackreq=True),
        write(FIRST + 5, 0x0A, content, address=0, qpn=0x12),
        write(FIRST, 0x0B, bytes(100), address=0, immediate=5, qpn=0x12, ackreq=True),
        datagram,
        {**datagram, "deth": [1, 0xABC]},
        write(FIRST, 0x2A, content, address=0x100, vlan=5),
        write(FIRST + 1, 0x2B, b"", address=0, key=0, immediate=9, trailing=11),
        write(FIRST + 2, 0x2A, content, address=0x100, key=0x1235),
        write(FIRST + 3, 0x2A, content, address=REGION_BYTES - 99),
        write(FIRST + 4, 0x2A, content, address=0x100, icrc=0x12345678),
        write(FIRST + 4, 0x2A, content, address=0x100, qpn=0x14),
        {"opcode": 0x81, "qpn": 0x11, "psn": 0, "payload": "00" * 16},
    ]
    verdicts, lines, image = played(tmp_path, sent)
    assert verdicts == [
        *["placed", "out_of_sequence", "duplicate", "placed", "wrong_queue_key", "placed", "placed", "unknown_key"],
        *["out_of_bounds", "wrong_icrc", "unknown_queue_pair", "congestion_notification"],
    ]
    assert image == memory((0, content), (0x8000, content), (0x100, content))
    assert [line[1:] for line in lines if line[0] == "completion"] == [["12", "00000005", "100"], ["13", "00000007", "100"], ["11", "00000009", "0"]]
    # The replies, as scapy reads them: acknowledged, number 0xFFFFFF is missing, acknowledged again.
    replies = [frame for line in lines if line[0] == "reply" for frame in scapy("read", line[1])]
    assert [(reply["qpn"], reply["psn"], reply["syndrome"], reply["msn"]) for reply in replies] == [
        (0xBEEF, FIRST, 0x1F, 1),
        (0xBEEF, FIRST + 1, 0x60, 1),
        (0xBEEF, FIRST, 0x1F, 1),
    ]
