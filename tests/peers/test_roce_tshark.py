"""tshark takes apart what our RoCEv2 engine makes."""

import json
import pathlib
import subprocess

import programs  # noqa: F401  puts our other tests on the path
import pytest
from examples_of_ours import example
from programs import needs
from roce_capture import packets_of_ours

TSHARK = pathlib.Path("/usr/bin/tshark")
pytestmark = [pytest.mark.peer("tshark"), needs(TSHARK, "tshark")]

BTH = ["opcode", "destqp", "psn", "padcnt", "m", "tver", "p_key"]


def tshark(capture, *arguments):
    command = [TSHARK, "-n", "-r", capture, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


def layers(capture):
    """For each frame all fields of its InfiniBand layer by name, as numbers where they are numbers."""
    found = []
    for frame in json.loads(tshark(capture, "-T", "json", "-J", "infiniband data")):
        fields = {}

        def collect(node, fields=fields):
            for name, value in node.items():
                if isinstance(value, dict):
                    collect(value)
                else:
                    fields[name] = value

        collect(frame["_source"]["layers"])
        found.append(fields)
    return found


def number(text):
    return int(text.replace(":", ""), 16) if ":" in text or text.startswith("0x") else int(text)


def test_every_packet_is_taken_apart_as_it_was_meant(tmp_path):
    """Takes all our RoCEv2 packets apart as they were meant, without a complaint. It does not verify the iCRC."""
    # Nor does it know the notification of congestion (0x81).
    capture = tmp_path / "ours.pcap"
    subprocess.run([example("konkordia-fabric", "roce_pcap"), "make", capture], check=True, timeout=60)
    found, expected = layers(capture), packets_of_ours()
    assert len(found) == len(expected)
    for n, (fields, packet) in enumerate(zip(found, expected, strict=True)):
        values = [number(fields[f"infiniband.bth.{name}"]) for name in BTH]
        payload = packet["payload"]
        assert values == [packet["opcode"], packet["qpn"], packet["psn"], -len(payload) % 4, 1, 0, 0xFFFF], n
        if packet["opcode"] == 0x81:
            continue
        for header, names in {"reth": ("va", "r_key", "dmalen"), "deth": ("q_key", "srcqp")}.items():
            there = [number(fields[f"infiniband.{header}.{name}"]) for name in names if f"infiniband.{header}.{name}" in fields]
            assert there == list(packet.get(header) or ()), n
        for header, name in {"immdt": "immediate", "aeth": "aeth"}.items():
            there = fields.get(f"infiniband.{header}")
            assert (None if there is None else int(there.replace(":", ""), 16)) == packet.get(name), (n, name)
        assert bytes.fromhex(fields.get("data.data", "").replace(":", ""))[: len(payload)] == payload, n
    # RoCEv2 sends no checksum of UDP over IPv6 either, because the iCRC covers the packet.
    assert tshark(capture, "-o", "udp.ignore_ipv6_zero_checksum:TRUE", "-Y", "_ws.malformed || _ws.expert") == ""
