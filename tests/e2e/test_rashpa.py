"""`konkordia rashpa`: modules, receivers and their manager as processes over loopback."""

import json
import signal
import socket
import struct
import subprocess
import threading

import numpy as np
import pytest
from driving import BINARY, program
from service import until

PATIENCE = 60


class Member:
    """A program in the background; it has said where it takes telegrams."""

    def __init__(self, *arguments):
        command = [BINARY, "rashpa", *map(str, arguments)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.said, self.out, self.changed = [], [], threading.Condition()
        self.threads = [
            threading.Thread(target=self._read, args=(self.process.stderr, self.said)),
            threading.Thread(target=self._read, args=(self.process.stdout, self.out)),
        ]
        for thread in self.threads:
            thread.start()
        if arguments[0] != "manager":
            self.address = self.wait_for("telegrams at").split("telegrams at ")[1].split(";")[0]

    def _read(self, stream, lines):
        for line in stream:
            with self.changed:
                lines.append(line.rstrip())
                self.changed.notify_all()

    def wait_for(self, part):
        """The first line on stderr with this part."""

        def found():
            return next((line for line in self.said if part in line), None)

        with self.changed:
            assert self.changed.wait_for(found, PATIENCE), (part, self.said)
            return found()

    def end(self):
        """Its exit code and its account."""
        code = self.process.wait(PATIENCE)
        for thread in self.threads:
            thread.join(PATIENCE)
        assert "panicked" not in "".join(self.said)
        text = "\n".join(self.out)
        return code, json.loads(text) if text else None


@pytest.fixture
def members():
    """Starts members, and ends those that are left."""
    started = []

    def start(*arguments):
        started.append(Member(*arguments))
        return started[-1]

    yield start
    for member in started:
        if member.process.poll() is None:
            member.process.kill()
        member.process.wait(PATIENCE)
        for thread in member.threads:
            thread.join(PATIENCE)


def system(path, modules, receivers, transfers, name="manager", links=()):
    """Writes the description of a system with modules of 64 x 64 pixels, one below the other. `links` are those of the
    receivers, if they are not to be the default."""
    lines = [f'name = "{name}"']
    for n, module in enumerate(modules):
        lines.append(f'[[modules]]\nid = {n}\ntelegrams = "{module.address}"\nx = 0\ny = {n * 64}')
    for n, receiver in enumerate(receivers):
        link = f'\nlink = "{links[n]}"' if links else ""
        lines.append(f'[[receivers]]\nid = {n}\ntelegrams = "{receiver.address}"{link}')
    for n, transfer in enumerate(transfers):
        lines.append(f"[[transfers]]\nid = {n}\npacket_bytes = 1024\n{transfer}")
    path.write_text("\n".join(lines) + "\n")
    return path


def say(address, xml):
    """Says it to a member in a connection of its own, and returns what it answers until it closes, or one answer."""
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), PATIENCE) as stream:
        stream.settimeout(PATIENCE)
        stream.sendall(xml if isinstance(xml, bytes) else struct.pack(">I", len(xml)) + xml.encode())
        length = struct.unpack(">I", stream.recv(4, socket.MSG_WAITALL))[0]
        return stream.recv(length, socket.MSG_WAITALL).decode()


def talk(address, frames):
    """Sends these telegrams at once in one connection, and returns the answers."""
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), PATIENCE) as stream:
        stream.settimeout(PATIENCE)
        stream.sendall(b"".join(struct.pack(">I", len(frame)) + frame.encode() for frame in frames))
        lengths = (struct.unpack(">I", stream.recv(4, socket.MSG_WAITALL))[0] for _ in frames)
        return [stream.recv(length, socket.MSG_WAITALL).decode() for length in lengths]


def telegram(body, number=1, sender="test"):
    return f'<rashpa version="1" number="{number}" sender="{sender}">{body}</rashpa>'


# By which links two receivers are reached.
LINKS = pytest.mark.parametrize("links", [("rdma-udp", "rdma-udp"), ("shm", "shm"), ("shm", "rdma-udp")], ids="-".join)


@LINKS
def test_all_images_of_a_run_are_equal_to_what_was_sent(tmp_path, members, links):
    kinds = links
    links = ["--link", "127.0.0.1", "--link", "127.0.0.2"]
    modules = [members("module", "--id", n, *links, "--rate", 20, "--seed", 3, "--once", "--json") for n in range(2)]
    receive = ["--check", 3, "--silence", 5, "--once", "--json", *links]
    receivers = [members("receiver", "--id", n, "--output", tmp_path / f"r{n}", *receive) for n in range(2)]
    region = "region = { x = 10, y = 50, width = 20, height = 30 }"
    transfers = [
        "receivers = [0]\nslices = 30\nslots = 64",
        f'receivers = [1]\nslices = 30\nslots = 64\ndataset = "region"\n{region}',
    ]
    path = system(tmp_path / "system.toml", modules, receivers, transfers, links=kinds)
    done = program("rashpa", "manager", path, "--timeout", 30, "--json", timeout=2 * PATIENCE, check=0)
    assert [line.split(" ")[0] for line in done.stderr.splitlines()] == [
        *["B", "B", "M", "M", "S1", "S2", "R1", "R2", "R3", "D1", "D2"],
        *["arm:", "start:", "stop:"],
    ]
    report = json.loads(done.stdout)
    assert report["complete"] and not report["left"] and [one["blocks"] for one in report["modules"]] == [60, 60]
    packets = 0
    for member in modules:
        code, account = member.end()
        assert code == 0 and account["balances"] and account["finished"], account
        # The sockets, and behind them all shared memory. To receiver 1 go fewer packets.
        used = {link["link"] for link in account["links"] if link["packets"] > 20}
        assert used == ({0, 1} if "rdma-udp" in kinds else set()) | ({2} if "shm" in kinds else set()), account["links"]
        packets += account["packets"] + account["events"]
    received = 0
    for member, pixels in zip(receivers, (128 * 64, 20 * 30), strict=True):
        code, account = member.end()
        (transfer,) = account["transfers"]
        assert code == 0 and account["balances"] and account["lost"] == 0 and account["credits"] > 0, (account, member.said)
        assert (transfer["whole"], transfer["slices"], transfer["written"]) == (30, 30, 30)
        assert (transfer["bytes_equal"], transfer["bytes_different"]) == (30 * pixels * 2, 0)
        received += account["packets"]["received"]
    assert packets == received
    for n in range(30):
        whole = np.load(tmp_path / f"r0/transfer-0-{n:06}.npy")
        assert whole.shape == (128, 64) and whole.dtype == np.uint16 and len(np.unique(whole)) > 1000
        assert np.array_equal(np.load(tmp_path / f"r1/transfer-1-{n:06}.npy"), whole[50:80, 10:30])


def status(member):
    """What a member says of its run."""
    return json.loads(program("rashpa", "status", member.address, "--json").stdout)["members"][0]["answer"]


def packets(member):
    """Packets that a member has sent or received in its run."""
    return status(member)["packets"]


# Packets and the event of a block of 64 x 64 pixels of 2 bytes.
BLOCK_PACKETS = 8 + 1


def stop_in_mid_slice(module, receiver):
    """Stops the module between two packets of one block to this receiver, which has read an image before."""
    while True:
        until(lambda: status(receiver)["whole"] >= 1, "a whole image", PATIENCE)
        until(lambda: 2 <= packets(receiver) % BLOCK_PACKETS <= 6, "a slice on its way", PATIENCE)
        module.process.send_signal(signal.SIGSTOP)
        until(lambda: packets(receiver) == packets(receiver), "all that was sent has come", PATIENCE)
        if 1 <= packets(receiver) % BLOCK_PACKETS < BLOCK_PACKETS - 1:
            return packets(receiver)
        module.process.send_signal(signal.SIGCONT)


@LINKS
def test_a_receiver_that_is_killed_in_mid_slice_does_not_disturb_the_other_one(tmp_path, members, links):
    # A slice takes two seconds.
    slow = ["--rate", 1, "--packet-rate", 10]
    module = members("module", "--id", 0, *slow, "--once", "--json")
    receivers = [members("receiver", "--id", n, "--check", 1, "--silence", 20, "--once", "--json") for n in range(2)]
    transfers = [f"receivers = [{n}]\nslices = 10\nslots = 4" for n in range(2)]
    path = system(tmp_path / "system.toml", [module], receivers, transfers, links=links[::-1])
    manager = members("manager", path, "--timeout", 30, "--json")
    manager.wait_for("start: done")
    seen = stop_in_mid_slice(module, receivers[1])
    assert seen % BLOCK_PACKETS > 0
    receivers[1].process.kill()
    receivers[1].process.wait(PATIENCE)
    module.process.send_signal(signal.SIGCONT)
    code, report = manager.end()
    assert code == 1 and report["left"] == ["receiver 1"] and report["finished"] and not report["complete"]
    assert any("receiver 1 has left: " in line and "onnection" in line for line in manager.said), manager.said
    code, account = receivers[0].end()
    assert code == 0 and account["balances"] and account["transfers"][0]["whole"] == 10, (account, receivers[0].said)
    code, account = module.end()
    left = " ".join(account["left"])
    assert code == 1 and account["balances"] and account["blocks"] + account["skipped"] == 20, account
    assert "receiver-1 has left: its connection for credits has ended" in left, (account, module.said)
    if links[::-1][1] == "shm":
        assert "receiver 1 is not written any more: it has left its shared memory: its program has ended" in left, account
        assert account["receivers"][1]["send_errors"] > 0
    assert any("receiver-1 has left module-0" in line for line in module.said)


def test_a_module_that_is_killed_in_mid_slice_is_named_and_the_other_one_goes_on(tmp_path, members):
    modules = [members("module", "--id", n, "--rate", 1, "--packet-rate", 10, "--once", "--json") for n in range(2)]
    # Of its own receiver, so that nobody waits for pixels that do not come.
    receivers = [members("receiver", "--id", n, "--check", 1, "--silence", 1, "--once", "--json") for n in range(2)]
    regions = [f"region = {{ x = 0, y = {64 * n}, width = 64, height = 64 }}" for n in range(2)]
    transfers = [f'receivers = [{n}]\nslices = 8\nslots = 4\ndataset = "region"\n{regions[n]}' for n in range(2)]
    path = system(tmp_path / "system.toml", modules, receivers, transfers, links=["shm", "shm"])
    manager = members("manager", path, "--timeout", 30, "--json")
    manager.wait_for("start: done")
    stop_in_mid_slice(modules[0], receivers[0])
    modules[0].process.kill()
    receivers[0].wait_for("module 0 has left the shared memory before it told its end: its program has ended")
    code, report = manager.end()
    assert code == 1 and report["left"] == ["module 0"], report
    code, account = receivers[0].end()
    assert code == 1 and account["balances"] and "has left" in account["modules"][0]["fault"], account
    assert account["transfers"][0]["bytes_different"] == 0 and account["modules"][1]["fault"] is None
    code, account = receivers[1].end()
    assert account["balances"] and account["transfers"][0]["whole"] == 8, account
    code, account = modules[1].end()
    assert code == 0 and account["balances"] and account["blocks"] == 8


def test_nonsense_in_the_queue_of_a_module_is_reported_and_nothing_breaks(tmp_path, members):
    module = members("module", "--id", 0, "--rate", 2, "--packet-rate", 20, "--once", "--json")
    receiver = members("receiver", "--id", 0, "--check", 1, "--silence", 1, "--once", "--json")
    path = system(tmp_path / "system.toml", [module], [receiver], ["receivers = [0]\nslices = 8\nslots = 4"], links=["shm"])
    manager = members("manager", path, "--timeout", 30, "--json")
    manager.wait_for("start: done")
    until(lambda: packets(receiver) > 0, "packets on their way", PATIENCE)
    # Whoever was told the address can write everywhere. Behind a page are the slots, and the ring with its queue.
    address = say(receiver.address, telegram("<capabilities-request/>")).split('kind="shm" address="')[1].split('"')[0]
    process, file, _ = address.split("/")
    with open(f"/proc/{process}/fd/{file}", "r+b", buffering=0) as memory:
        memory.seek(4096 + 4 * 64 * 64 * 2 + 16384 * 64)
        written = struct.unpack("<Q", memory.read(8))[0]
        assert 0 < written < 100, "the queue is at its place"
        memory.seek(-8, 1)
        memory.write(struct.pack("<Q", 1 << 63))
        with pytest.raises(OSError):
            memory.truncate(0)
    receiver.wait_for("module 0 breaks the rules of the queue: it says that it has written 9223372036854775808 entries")
    code, report = manager.end()
    assert code == 1 and not report["left"], report
    code, account = receiver.end()
    assert code == 1 and "breaks the rules" in account["modules"][0]["fault"], account
    code, account = module.end()
    assert account["balances"], account


def test_a_module_whose_manager_leaves_at_once_gives_an_account(members):
    module = members("module", "--id", 0, "--json")
    bodies = [
        "<comm-config/>",
        '<ras-map bytes="8192"><entry base="0" receiver="0" local-buffer="1" bytes="8192" address="0" key="0" unit-bytes="2"/>'
        '<receive-buffer id="0" base="0" bytes="8192"/>'
        '<event-ring receiver="0" local-buffer="2" records="4" address="8192"/></ras-map>',
        '<dtp-config><transfer id="0" channel="0" dataset="image" first-slice="0" slices="5" step="1" x="0" y="0" width="64"'
        ' height="64" receive-buffer="0" slots="1" slot-bytes="8192" block-offset="0" row-pitch-bytes="128" policy="credit"'
        ' packet-bytes="1024"/></dtp-config>',
        '<start run="1"/>',
        "<stop/>",
        "<release/>",
    ]
    # It is over before the module can have looked.
    answers = talk(module.address, [telegram(body, number) for number, body in enumerate(bodies, 1)])
    assert all("<ack" in answer for answer in answers), answers
    with module.changed:
        assert module.changed.wait_for(lambda: module.out, PATIENCE), "the account of its run"
    assert "is free" in program("rashpa", "status", module.address).stdout
    module.process.send_signal(signal.SIGINT)
    code, account = module.end()
    assert account["balances"] and not account["finished"] and account["blocks"] <= 1, (code, account)


def test_what_is_out_of_order_or_no_telegram_is_refused(members):
    module = members("module", "--id", 7)
    answer = say(module.address, telegram('<start run="1"/>'))
    assert 'code="order"' in answer and "start comes after comm-config, which was not done; do that first" in answer
    answer = say(module.address, telegram('<ack number="x"/>'))
    assert "number of &lt;ack> is 'x', but has to be a number" in answer
    answer = say(module.address, struct.pack(">I", 1 << 30))
    assert "1 to 1048576 bytes, not 1073741824" in answer
    laughs = '<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;">]><rashpa>&b;</rashpa>'
    assert "document type" in say(module.address, laughs)
    assert "is free" in program("rashpa", "status", module.address, check=0).stdout
    module.process.send_signal(signal.SIGINT)
    assert module.end() == (0, None), "it had no run"


def test_a_second_manager_is_refused_and_ctrl_c_ends_all_with_their_accounts(tmp_path, members):
    module = members("module", "--id", 0, "--rate", 20, "--once", "--json")
    receiver = members("receiver", "--id", 0, "--check", 1, "--silence", 5, "--once", "--json")
    endless = ["receivers = [0]\nslots = 64"]
    first = system(tmp_path / "first.toml", [module], [receiver], endless)
    second = system(tmp_path / "second.toml", [module], [receiver], endless, name="second")
    manager = members("manager", first, "--timeout", 30, "--json")
    manager.wait_for("start: done")
    refused = program("rashpa", "manager", second, check=5)
    assert "receiver 0 refuses comm-config: receiver-0 is configured by manager; it has to release" in refused.stderr
    assert "is running" in program("rashpa", "status", module.address, check=0).stdout
    manager.process.send_signal(signal.SIGINT)
    code, report = manager.end()
    assert code == 0 and report["complete"] and report["receivers"][0]["whole"] > 0, (report, manager.said)
    for member in (module, receiver):
        code, account = member.end()
        assert code == 0 and account["balances"], (account, member.said)


def test_a_manager_that_is_killed_leaves_nobody_behind(tmp_path, members):
    module = members("module", "--id", 0, "--rate", 20, "--json")
    receiver = members("receiver", "--id", 0, "--silence", 1, "--json")
    path = system(tmp_path / "system.toml", [module], [receiver], ["receivers = [0]\nslots = 64"])
    manager = members("manager", path, "--timeout", 30)
    manager.wait_for("start: done")
    # Both are in the midst of the run.
    until(lambda: all(packets(member) > 0 for member in (module, receiver)), "packets on their way", PATIENCE)
    manager.process.kill()
    for member in (module, receiver):
        member.wait_for("has left without a word")
        with member.changed:
            assert member.changed.wait_for(lambda: member.out, PATIENCE), "the account of its run"  # noqa: B023
    # The next manager of the same name sets the same members up.
    again = members("manager", path, "--timeout", 30, "--seconds", 1, "--json")
    code, report = again.end()
    assert code == 0 and report["complete"], (report, again.said)
    module.process.send_signal(signal.SIGINT)
    assert module.process.wait(PATIENCE) == 0


def test_a_member_that_is_not_there_is_named(tmp_path, members):
    module = members("module", "--id", 3)
    receiver = members("receiver", "--id", 0)
    path = system(tmp_path / "system.toml", [module], [receiver], ["receivers = [0]\nslots = 4"])
    done = program("rashpa", "manager", path, check=3)
    assert "module 0 answers with the capabilities of module 3, but module 0 was asked" in " ".join(done.stderr.split())
    receiver.process.kill()
    receiver.process.wait(PATIENCE)
    done = program("rashpa", "manager", path, "--timeout", 1, check=4)
    assert f"receiver 0 cannot be reached at {receiver.address}" in done.stderr
    path.write_text("modules = 3\n")
    assert "docs/rashpa.md" in program("rashpa", "manager", path, check=3).stderr
