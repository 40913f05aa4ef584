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


def system(path, modules, receivers, transfers, name="manager"):
    """Writes the description of a system with modules of 64 x 64 pixels, one below the other."""
    lines = [f'name = "{name}"']
    for n, module in enumerate(modules):
        lines.append(f'[[modules]]\nid = {n}\ntelegrams = "{module.address}"\nx = 0\ny = {n * 64}')
    for n, receiver in enumerate(receivers):
        lines.append(f'[[receivers]]\nid = {n}\ntelegrams = "{receiver.address}"')
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


def telegram(body, number=1, sender="test"):
    return f'<rashpa version="1" number="{number}" sender="{sender}">{body}</rashpa>'


def test_all_images_of_a_run_are_equal_to_what_was_sent(tmp_path, members):
    links = ["--link", "127.0.0.1", "--link", "127.0.0.2"]
    modules = [members("module", "--id", n, *links, "--rate", 20, "--seed", 3, "--once", "--json") for n in range(2)]
    receive = ["--check", 3, "--silence", 5, "--once", "--json", *links]
    receivers = [members("receiver", "--id", n, "--output", tmp_path / f"r{n}", *receive) for n in range(2)]
    region = "region = { x = 10, y = 50, width = 20, height = 30 }"
    transfers = [
        "receivers = [0]\nslices = 30\nslots = 64",
        f'receivers = [1]\nslices = 30\nslots = 64\ndataset = "region"\n{region}',
    ]
    path = system(tmp_path / "system.toml", modules, receivers, transfers)
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
        assert {link["link"] for link in account["links"] if link["packets"] > 100} == {0, 1}, "both links carry packets"
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


def test_a_receiver_that_is_killed_in_mid_run_does_not_disturb_the_other_one(tmp_path, members):
    module = members("module", "--id", 0, "--rate", 20, "--once", "--json")
    receivers = [members("receiver", "--id", n, "--check", 1, "--silence", 5, "--once", "--json") for n in range(2)]
    transfers = [f"receivers = [{n}]\nslices = 100\nslots = 64" for n in range(2)]
    path = system(tmp_path / "system.toml", [module], receivers, transfers)
    manager = members("manager", path, "--timeout", 30, "--json")
    manager.wait_for("start: done")
    # The module sends one slice after the other, so it is in the middle of one, or between two.
    while json.loads(program("rashpa", "status", receivers[1].address, "--json").stdout)["members"][0]["answer"]["whole"] < 5:
        pass
    receivers[1].process.kill()
    code, report = manager.end()
    assert code == 1 and report["left"] == ["receiver 1"] and report["finished"] and not report["complete"]
    assert any("receiver 1 has left" in line for line in manager.said)
    code, account = receivers[0].end()
    assert code == 0 and account["balances"] and account["transfers"][0]["whole"] == 100, account
    code, account = module.end()
    assert code == 1 and account["balances"] and account["skipped"] > 0, "nobody gives credits for its slots any more"
    assert account["blocks"] + account["skipped"] == 200


def test_what_is_out_of_order_or_no_telegram_is_refused(members):
    module = members("module", "--id", 7)
    answer = say(module.address, telegram("<start/>"))
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


def packets(member):
    """Packets that a member has sent or received in its run, as `konkordia rashpa status` says."""
    status = json.loads(program("rashpa", "status", member.address, "--json").stdout)
    return status["members"][0]["answer"]["packets"]


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
