"""What `crates/fabric/examples/roce_pcap.rs` says and takes, worked out here without our code: the packets of its capture,
and the responder that plays one."""

BASE, REGION_BYTES, FILL, KEY = 0x10000, 1 << 16, 0xC5, 0x1234
# PSN of the first packet of each queue pair, so that numbers wrap.
FIRST = 0xFFFFFE
PATH_MTU = 256
QUEUE_KEY = 0x11112222


def pixels(size):
    return bytes((i * 7 + i // 256) & 0xFF for i in range(size))


def parts(content):
    return [content[at : at + PATH_MTU] for at in range(0, len(content), PATH_MTU)]


def extensions(packet):
    """The headers behind the BTH, as bytes."""
    widths = {"deth": (4, 4), "reth": (8, 4, 4), "immediate": (4,), "aeth": (4,)}
    found = b""
    for name, sizes in widths.items():
        if packet.get(name) is not None:
            values = packet[name] if isinstance(packet[name], tuple) else (packet[name],)
            found += b"".join(value.to_bytes(size) for value, size in zip(values, sizes, strict=True))
    return found


def packets_of_ours():
    """All packets of the capture, as dictionaries without the fields that they do not have."""
    found = []

    def add(opcode, payload=b"", *, qpn=0x11, psn=None, version=4, **fields):
        psn = (FIRST + sum(packet["qpn"] == 0x11 for packet in found)) & 0xFFFFFF if psn is None else psn
        found.append({"opcode": opcode, "payload": payload, "qpn": qpn, "psn": psn, "version": version, **fields})

    def one_message(content, address, opcodes, immediate, **fields):
        pieces = parts(content)
        for n, piece in enumerate(pieces):
            if n == 0:
                add(opcodes[0], piece, **({"reth": (address, KEY, len(content))} if address else {}), **fields)
            elif n + 1 < len(pieces):
                add(opcodes[1], piece, **fields)
            else:
                add(opcodes[2] if immediate is None else opcodes[3], piece, immediate=immediate, **fields)

    def only(content, address, immediate=None):
        pieces = parts(content)
        for n, piece in enumerate(pieces):
            told = immediate if n + 1 == len(pieces) else None
            opcode = 0x2A if told is None else 0x2B
            add(opcode, piece, reth=(address + PATH_MTU * n, KEY, len(piece)), immediate=told)

    content = pixels(1000)
    for immediate in (None, 0xDEADBEEF):
        one_message(content, BASE, [0x26, 0x27, 0x28, 0x29], immediate)
    for immediate in (None, 0xDEADBEEF):
        only(content, BASE + 0x1000, immediate)
    for immediate in (None, 1):
        one_message(content[:600], None, [0x20, 0x21, 0x22, 0x23], immediate)
        add(0x24 if immediate is None else 0x25, content[:5], immediate=immediate)
    # The dialect of the Holoscan sensor bridge: a block of 128 bytes at the next multiple of 128 behind the frame.
    only(content, BASE + 0x4000)
    psn = (FIRST + len(found)) & 0xFFFFFF
    times = [(1_700_000_000, 8), (5, 4)], [(1_700_000_000, 8), (6, 4)]
    block = [(0, 4), (psn, 4), (0, 4), *times[0], (1000, 8), (9, 4), *times[1]]
    said = b"".join(value.to_bytes(size) for value, size in block).ljust(128, b"\0")
    add(0x2B, said, reth=(BASE + 0x4000 + 1024, KEY, 128), immediate=2 | psn << 12 & 0xFFFFFFFF)
    for n, immediate in enumerate((None, 77)):
        told = {"deth": (QUEUE_KEY, 0xABCDEF), "immediate": immediate}
        add(0x64 if immediate is None else 0x65, content[:30], qpn=0x13, psn=(FIRST + n) & 0xFFFFFF, **told)
    for syndrome in (0x1F, 0x60, 0x2E):
        add(0x11, qpn=0x12, psn=5, aeth=syndrome << 24 | 0x010203)
    one_message(content[:300], BASE, [0x26, 0x27, 0x28, 0x29], 6, version=6)
    # The notification stands before the packets over IPv6, and has a number of its own.
    found.insert(-2, {"opcode": 0x81, "payload": bytes(16), "qpn": 0x11, "psn": 0, "version": 4})
    return found
