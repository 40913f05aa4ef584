"""Programs of the bridge: `konkordia bridge`, with simulated detectors, and in the kernel's machine."""

import ctypes
import errno
import json
import random
import struct
import subprocess
import sys
import time

import pytest
from driving import BINARY, program

SHIPPED = ["jungfrau-1", "jungfrau-2", "eiger-4bit", "eiger-8bit", "eiger-16bit", "eiger-32bit"]


def test_shipped_programs_are_valid_and_wrong_ones_say_the_line(tmp_path):
    said = json.loads(program("bridge", "check", *SHIPPED, "--json", check=0).stdout)
    assert [one["valid"] for one in said["programs"]] == [True] * 6
    assert {one["summary"]["gap_bytes"] for one in said["programs"]} == {0}
    mine = tmp_path / "mine.toml"
    text = program("bridge", "show", "eiger-8bit", "--toml", check=0).stdout
    mine.write_text(text.replace("offset = 261632", "offset = 261120"))
    said = program("bridge", "check", mine, check=3).stdout
    assert "[[tiles]] number 2: byte" in said and "each byte has one packet" in said
    assert "line" in program("bridge", "show", mine, check=3).stderr


def test_frames_with_missing_packets_are_padded_and_masked(tmp_path):
    store = tmp_path / "frames"
    text = program("bridge", "show", "eiger-8bit", "--toml", check=0).stdout
    mine = tmp_path / "mine.toml"
    first = random.randrange(30000, 60000, 4)
    for n in range(4):
        text = text.replace(f"port = {50020 + n}", f"port = {first + n}")
    mine.write_text(text)
    command = [BINARY, "bridge", "run", str(mine), "--store", str(store), "--first-frame", "1", "--missing", "pad"]
    receiver = subprocess.Popen([*command, "--silence", "1", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert "4 ports" in receiver.stderr.readline()
    send = ["--bits", "8", "--rate", "50", "--images", "10", "--loss", "0.05", "--seed", "3"]
    program("simulate", "eiger", "--to", f"127.0.0.1:{first}", *send)
    out, _ = receiver.communicate(timeout=30)
    said = json.loads(out)
    assert receiver.returncode == 1, "packets are missing"
    frames, packets = said["frames"], said["packets"]
    assert frames["complete"] + frames["partial"] == 10 and frames["partial"] > 0
    assert sum(packets.values()) == said["packets_received"] == packets["placed"] < 10 * 4 * 32
    pixels, masks = store.read_bytes(), store.with_name("frames.masks").read_bytes()
    bits = 0
    for frame in range(1, 11):
        slot = pixels[frame * (1 << 19) : (frame + 1) * (1 << 19)]
        for tile in range(4):
            mask = int.from_bytes(masks[(frame * 4 + tile) * 64 :][:64], "little")
            bits += mask.bit_count()
            for packet in range(32):
                line = 255 - 8 * packet if tile < 2 else 256 + 8 * packet
                pixel = slot[line * 1024 + tile % 2 * 512 :][:512]
                assert (pixel == b"\xff" * 512) == (not mask >> packet & 1), (frame, tile, packet)
    assert bits == packets["placed"]


class Kernel:
    """Programs of XDP in the kernel: bpf(2), commands BPF_PROG_LOAD and BPF_PROG_TEST_RUN."""

    def __init__(self, instructions):
        self.libc = ctypes.CDLL(None, use_errno=True)
        code = ctypes.create_string_buffer(instructions, len(instructions))
        licence, log = ctypes.create_string_buffer(b"Apache-2.0"), ctypes.create_string_buffer(1 << 20)
        places = (ctypes.addressof(code), ctypes.addressof(licence), 1, len(log), ctypes.addressof(log))
        self.program = self.call(5, struct.pack("=IIQQIIQ", 6, len(instructions) // 8, *places))[0]
        if self.program < 0 and ctypes.get_errno() in (errno.EPERM, errno.ENOSYS):
            pytest.skip("this process has no right to load XDP programs (CAP_BPF, CAP_NET_ADMIN)")
        assert self.program >= 0, log.value.decode()

    def call(self, command, attributes):
        memory = ctypes.create_string_buffer(attributes.ljust(128, b"\0"), 128)
        return self.libc.syscall(321, command, memory, 128), memory.raw

    def run(self, frame):
        """The result, and the frame with what stands in front of it."""
        into, out = ctypes.create_string_buffer(frame, len(frame)), ctypes.create_string_buffer(8192)
        places = (self.program, 0, len(frame), len(out), ctypes.addressof(into), ctypes.addressof(out), 1, 0)
        done, memory = self.call(10, struct.pack("=IIIIQQII", *places))
        assert done == 0, ctypes.get_errno()
        result, _, length = struct.unpack_from("=III", memory, 4)
        return result, out.raw[:length]


@pytest.mark.skipif(sys.platform != "linux" or struct.calcsize("P") != 8, reason="numbers of system calls are those of x86-64")
def test_the_kernel_takes_the_instructions_and_finds_the_same_addresses(tmp_path):
    said = json.loads(
        program("bridge", "show", "eiger-16bit", "--all", "--json", "--ebpf", tmp_path / "code", check=0).stdout
    )
    address = {(row["tile"], row["packet"]): row["address"] for row in said["table"]}
    kernel = Kernel((tmp_path / "code").read_bytes())
    draw, found, begin = random.Random(1), 0, time.monotonic()
    for _ in range(2000):
        tile, packet, frame = draw.randrange(-1, 5), draw.randrange(80), draw.getrandbits(draw.choice([8, 48, 64]))
        version, length = draw.choice([2, 2, 2, 1]), draw.choice([4152] * 5 + [4151])
        header = struct.pack("<QII", frame, 0, packet).ljust(46, b"\7") + bytes([1, version])
        ip = b"\2" * 12 + b"\x08\0\x45" + b"\0" * 8 + b"\x11" + b"\0" * 10
        # The rest of the payload, which nobody looks at, would not fit into a frame of a test run.
        sent = ip + struct.pack(">HHHH", 40000, 50020 + tile, length, 0) + header + b"\x11" * 200
        expected = sent
        if (tile, packet) in address and version == 2 and length == 4152:
            slot = frame % said["slots"]
            place = slot * said["slot_bytes"] + address[tile, packet]
            expected, found = struct.pack("=HHIQ", packet, tile, slot, place) + sent, found + 1
        assert kernel.run(sent) == (2, expected), (tile, packet, frame)
    assert 300 < found < 1500 and time.monotonic() - begin < 30
