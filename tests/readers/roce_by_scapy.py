"""Packets of RoCEv2 by scapy; `test_roce.py` runs it. scapy is under the GPL: it runs in this process only.

roce_by_scapy.py compare CAPTURE           each frame taken apart and built again; prints what was found
roce_by_scapy.py build DESCRIBED CAPTURE   packets as DESCRIBED (JSON) says
roce_by_scapy.py read HEX                  a packet without the headers around it
"""

import json
import logging
import struct
import sys

logging.getLogger("scapy").setLevel(logging.ERROR)

from scapy.contrib.roce import AETH, BTH  # noqa: E402
from scapy.layers.inet import IP, UDP  # noqa: E402
from scapy.layers.inet6 import IPv6  # noqa: E402
from scapy.layers.l2 import Dot1Q, Ether  # noqa: E402
from scapy.packet import Raw  # noqa: E402
from scapy.utils import RawPcapReader, RawPcapWriter  # noqa: E402


def fields(bth):
    acknowledged = {"syndrome": bth[AETH].syndrome, "msn": bth[AETH].msn} if AETH in bth else {}
    return {"opcode": bth.opcode, "qpn": bth.dqpn, "psn": bth.psn, "pad": bth.padcount, "rest": bytes(bth.payload).hex(), **acknowledged}


def compare(capture):
    found = []
    for frame, _ in RawPcapReader(capture):
        packet = Ether(frame)
        again = packet.copy()
        # Everything that can be calculated is.
        ip = again[IP] if IP in again else again[IPv6]
        for layer, names in [(ip, ["len", "chksum"] if IP in again else ["plen"]), (again[UDP], ["len"]), (again[BTH], ["icrc"])]:
            for name in names:
                setattr(layer, name, None)
        again[UDP].chksum = 0
        found.append({**fields(packet[BTH]), "version": ip.version, "same": bytes(again) == frame})
    return found


def build(described, capture):
    frames = []
    with open(described, encoding="utf-8") as file:
        packets = json.load(file)
    for n, packet in enumerate(packets):
        payload = bytes.fromhex(packet["payload"])
        extensions = b""
        if packet.get("deth"):
            extensions += struct.pack(">II", *packet["deth"])
        if packet.get("reth"):
            extensions += struct.pack(">QII", *packet["reth"])
        if packet.get("immediate") is not None:
            extensions += struct.pack(">I", packet["immediate"])
        padding = -len(payload) % 4
        if packet.get("version", 4) == 4:
            ip = IP(src="10.0.0.1", dst="10.0.0.2", id=1000 + n, flags="DF", tos=2, ttl=17)
        else:
            ip = IPv6(src="fd00::1", dst="fd00::2", tc=2, fl=77, hlim=17)
        bth = BTH(
            opcode=packet["opcode"],
            migreq=1,
            padcount=padding,
            dqpn=packet["qpn"],
            psn=packet["psn"],
            ackreq=int(packet.get("ackreq", False)),
            becn=int(packet["opcode"] == 0x81),
            icrc=packet.get("icrc"),
        )
        head = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
        if packet.get("vlan"):
            head = head / Dot1Q(vlan=packet["vlan"])
        whole = head / ip / UDP(sport=0xC001, dport=4791, chksum=0) / bth / Raw(extensions + payload + bytes(padding))
        frames.append(bytes(whole) + b"\xee" * packet.get("trailing", 0))
    with RawPcapWriter(capture, linktype=1) as file:
        file.write_header(None)
        for frame in frames:
            file.write_packet(frame)
    return len(frames)


if __name__ == "__main__":
    verb, *arguments = sys.argv[1:]
    verbs = {"compare": compare, "build": build, "read": lambda text: [fields(BTH(bytes.fromhex(text)))]}
    print(json.dumps(verbs[verb](*arguments)))
