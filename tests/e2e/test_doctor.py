"""`konkordia doctor` on this host, whatever it is, and on runs with loss made on purpose."""

import contextlib
import ctypes
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time

import pytest
from driving import BINARY, INTERRUPT, balanced, ext4_over, frozen, jungfrau_packet, program, raw_tables, simulate
from lanes import SLOW

# Checks of the host, of each interface, of the folder.
HOST = [
    "rmem_max", "rmem_default", "netdev_max_backlog", "netdev_budget", "governor", "c_states", "smt", "irqbalance", "huge_pages",
    "memlock", "open_files", "priority", "receive", "firewall", "clock_source", "clock", "hdf5_plugins", "container",
    "virtual_machine", "cpu_quota", "memory", "softnet_drops", "udp_errors", "ip_fragments",
]
INTERFACE = [
    "mtu", "rp_filter", "gro", "checksums", "flow_hash", "ring", "coalescing", "pause", "queues", "irq_affinity", "numa", "pcie",
    "nic_drops", "af_xdp",
]
FOLDER = ["file_system", "memory_pages", "disk_space", "disk_speed"]
VERDICTS = ["pass", "skip", "warn", "fail"]


def doctor(*arguments):
    """The report of the host, checked for its form."""
    done = program("doctor", "--json", *arguments)
    report = json.loads(done.stdout)
    assert done.returncode == report["exit_code"] == (1 if report["counts"]["fail"] else 0), done.stderr
    for check in report["checks"]:
        assert check["verdict"] in VERDICTS and all(check[key] for key in ("check", "measured", "wanted", "why")), check
        assert bool(check["fix"]) == (check["verdict"] in ("warn", "fail")), check
        assert check["verdict"] != "pass" or "not known" not in check["measured"], check
    found = [check["check"] for check in report["checks"]]
    assert found == HOST + INTERFACE * len(report["interfaces"]) + FOLDER
    assert report["counts"] == {v: sum(check["verdict"] == v for check in report["checks"]) for v in VERDICTS}
    return report


def one(report, check, subject=""):
    (found,) = [c for c in report["checks"] if c["check"] == check and c["subject"] == subject]
    return found


def settings():
    """What the doctor could have changed, and must not."""
    names = ["net/core/rmem_max", "net/core/rmem_default", "net/core/netdev_max_backlog", "net/core/netdev_budget"]
    return [(pathlib.Path("/proc/sys") / name).read_text() for name in names if (pathlib.Path("/proc/sys") / name).exists()]


def test_every_check_of_this_host_has_a_result_and_nothing_is_changed(tmp_path):
    before = settings()
    report = doctor("--dir", tmp_path, "--write-seconds", "1")
    names = [name.name for name in pathlib.Path("/sys/class/net").iterdir()]
    assert report["host"] and set(report["interfaces"]) <= set(names) - {"lo"}
    speed = one(report, "disk_speed", str(tmp_path.resolve()))
    assert re.match(r"[0-9.]+ GB/s", speed["measured"]), speed
    assert settings() == before and list(tmp_path.iterdir()) == []
    text = program("doctor", "--iface", "lo", "--write-seconds", "0").stdout
    lines = [line for line in text.splitlines() if not line.startswith(" ")]
    assert len(lines) == len(HOST + INTERFACE + FOLDER) + 1 and lines[-1].endswith(" fail"), text
    assert all(line[:4] in ("PASS", "SKIP", "WARN", "FAIL") for line in lines[:-1]), text


def test_measured_values_are_those_of_the_kernel():
    report = doctor("--iface", "lo")
    assert report["interfaces"] == ["lo"]
    mtu = int(pathlib.Path("/sys/class/net/lo/mtu").read_text())
    assert one(report, "mtu", "lo")["measured"] == str(mtu)
    rmem = int(pathlib.Path("/proc/sys/net/core/rmem_max").read_text())
    number, unit = one(report, "rmem_max")["measured"].split(";")[0].split()
    power = ["B", "KiB", "MiB", "GiB", "TiB"].index(unit)
    assert abs(float(number) * 1024**power - rmem) <= 0.06 * 1024**power
    release = pathlib.Path("/proc/sys/kernel/osrelease").read_text().split(".")
    assert f"kernel {release[0]}.{release[1].split('-')[0]}," in one(report, "af_xdp", "lo")["measured"]
    # No folder and no configuration was named.
    assert one(report, "memory")["verdict"] == "skip"
    assert all(one(report, check)["verdict"] == "skip" for check in FOLDER)


def test_a_configuration_says_what_is_wanted_and_where_packets_arrive(bench):
    config = bench.config(source={"receive_buffer_mib": 64}, **raw_tables(images=1))
    report = doctor("--config", config, "--write-seconds", "0")
    assert report["interfaces"] == ["lo"]
    assert one(report, "rmem_max")["wanted"].startswith("at least 64.0 MiB ([source]")
    assert one(report, "mtu", "lo")["wanted"].startswith("at least 8268 ")
    assert "plan of the configuration" in one(report, "memory")["wanted"]
    assert one(report, "disk_speed", str(bench.folder.resolve()))["measured"].endswith("no test was wanted")
    assert not bench.master.exists()


def may_open_rings():
    """CAP_NET_RAW is bit 13 of the rights of a process."""
    (rights,) = re.findall(r"CapEff:\s*([0-9a-f]+)", pathlib.Path("/proc/self/status").read_text())
    return bool(int(rights, 16) >> 13 & 1)


def test_a_way_of_receiving_that_is_named_needs_its_rights_and_a_card(bench):
    config = bench.config(source={"receive": "packet"}, **raw_tables(images=1))
    found = one(doctor("--config", config, "--write-seconds", "0"), "receive")
    assert found["verdict"] == ("pass" if may_open_rings() else "fail"), found
    assert ("packet: permitted" if may_open_rings() else "packet: lacks CAP_NET_RAW") in found["measured"]
    config.write_text(config.read_text().replace("127.0.0.1", "0.0.0.0"))
    found = one(doctor("--config", config, "--iface", "lo", "--write-seconds", "0"), "receive")
    assert found["verdict"] == "fail" and "address of one card" in found["measured"], found
    config.write_text(config.read_text().replace('"packet"', '"auto"'))
    assert one(doctor("--config", config, "--iface", "lo", "--write-seconds", "0"), "receive")["verdict"] == "pass"


def test_mistakes_are_answered(tmp_path):
    assert "there is no interface" in program("doctor", "--iface", "no-such0", check=2).stderr
    assert "cannot read" in program("doctor", "--config", tmp_path / "none.toml", check=3).stderr
    assert program("doctor", "--run", tmp_path / "none.h5", check=6).stderr
    program("doctor", "--run", tmp_path / "none.h5", "--iface", "lo", check=2)
    missing = program("doctor", "--json", "--iface", "lo", "--dir", tmp_path / "none", check=1)
    (folder,) = [c for c in json.loads(missing.stdout)["checks"] if c["check"] == "file_system"]
    assert folder["verdict"] == "fail" and "none: No such file" in folder["measured"]


def test_the_script_is_one_that_a_shell_understands_and_mends_only_what_is_wrong(tmp_path):
    done = program("doctor", "--fix-script", "--iface", "lo", "--dir", tmp_path, "--write-seconds", "0")
    script = tmp_path / "fix.sh"
    script.write_text(done.stdout)
    assert done.stdout.startswith("#!/usr/bin/env bash\n") and "\nset -euo pipefail\n" in done.stdout
    subprocess.run(["bash", "-n", script], check=True)
    if shutil.which("shellcheck"):
        subprocess.run(["shellcheck", "--severity=warning", script], check=True)
    for check in doctor("--iface", "lo", "--dir", tmp_path, "--write-seconds", "0")["checks"]:
        of = f" of {check['subject']}" if check["subject"] else ""
        # Counters and free space may have moved between the two calls.
        moving = ("udp_errors", "softnet_drops", "ip_fragments", "netdev_budget", "disk_space", "memory", "firewall")
        if check["check"] not in moving:
            assert (f"\n# {check['check']}{of}: " in done.stdout) == bool(check["fix"]), check


def lost(master, code=1):
    """Where the packets of a run went: the causes, which together explain all missing packets."""
    found = json.loads(program("doctor", "--run", master, "--json", check=code).stdout)
    packets = [cause["lost"] for cause in found["causes"] if cause["unit"] == "packets"]
    assert sum(packets) == found["packets_missing"] and found["exit_code"] == code and found["host_counters"]
    assert all(cause["why"] and cause["fix"] and cause["certainty"] in ("counted", "likely", "possible") for cause in found["causes"])
    return found


@pytest.mark.alone
def test_packets_that_were_never_sent_on_were_lost_on_the_wire(bench):
    receiver = bench.receive(bench.config(**raw_tables(images=20, stall_timeout_s=2, first_frame=1)))
    sent = simulate("jungfrau", "--to", bench.to, "--images", 20, "--rate", 50, "--loss", 0.02, "--seed", 3)
    code, report = receiver.finish()
    balanced(code, report)
    assert report["images"]["packets_missing"] > 0 and report["host"]["file_waited_ms"] >= 0, (report, sent)
    found = lost(bench.master)
    assert [cause["place"] for cause in found["causes"]] == ["wire"] and found["causes"][0]["certainty"] == "likely", found
    text = program("doctor", "--run", bench.master, check=1).stdout
    assert "before this host" in text and "fix  " in text


@pytest.mark.alone
def test_packets_that_no_socket_had_room_for_were_lost_there(bench):
    """The receiver stands still while 40 of 100 images come; its socket has room for less than two."""
    tables = raw_tables(images=100, stall_timeout_s=3, first_frame=1)
    receiver = bench.receive(bench.config(source={"receive_buffer_mib": 1, "senders": "any"}, **tables))
    simulate("jungfrau", "--to", bench.to, "--images", 40, "--rate", 50)
    # On a busy machine some of these may be lost there, too.
    receiver.wait_until(lambda p: p["packets_received"] >= 20 * 128)
    receiver.signal(signal.SIGSTOP)
    simulate("jungfrau", "--to", bench.to, "--images", 40, "--rate", 100, "--first-frame", 41)
    receiver.signal(signal.SIGCONT)
    simulate("jungfrau", "--to", bench.to, "--images", 20, "--rate", 50, "--first-frame", 81)
    code, report = receiver.finish()
    balanced(code, report)
    assert code == 1 and report["total"]["kernel_dropped"] > 0, report
    found = lost(bench.master)
    assert found["causes"][0]["place"] == "socket", found
    assert found["causes"][0]["lost"] >= 0.9 * found["packets_missing"], found


def with_wrong_checksum(datagram, sender, port):
    """An IP packet whose UDP checksum does not fit: it is one more than the right one."""
    here = socket.inet_aton("127.0.0.1")
    head = struct.pack("!HHH", sender, port, 8 + len(datagram))
    covered = here + here + struct.pack("!HH", socket.IPPROTO_UDP, 8 + len(datagram)) + head + datagram
    right = 0xFFFF - sum(struct.unpack(f"!{len(covered) // 2}H", covered)) % 0xFFFF  # 1 to 0xFFFF
    udp = head + struct.pack("!H", right % 0xFFFF + 1) + datagram  # never 0, which would say "none"
    return struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 0, 0, 64, socket.IPPROTO_UDP, 0, here, here) + udp


def test_packets_that_were_damaged_on_the_way_are_named(bench):
    try:
        raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    except PermissionError:
        pytest.skip("no right to send packets with wrong checksums")
    # Who may send such packets may have a receive buffer for all 4 images.
    receiver = bench.receive(bench.config(**raw_tables(images=4, stall_timeout_s=2, first_frame=1)))
    damaged = {(1, 7), (2, 0), (2, 127), (3, 64), (3, 65)}
    with raw, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.bind(("127.0.0.1", 0))
        for frame in range(1, 5):
            for packet in range(128):
                datagram = jungfrau_packet(frame, packet)
                if (frame, packet) in damaged:
                    raw.sendto(with_wrong_checksum(datagram, sender.getsockname()[1], bench.port), ("127.0.0.1", 0))
                else:
                    sender.sendto(datagram, ("127.0.0.1", bench.port))
    code, report = receiver.finish()
    balanced(code, report)
    assert report["images"]["packets_missing"] == 5 <= report["host"]["host_wrong_checksums"], report
    (cause,) = lost(bench.master)["causes"]
    assert (cause["place"], cause["lost"], cause["certainty"]) == ("damaged", 5, "likely"), cause


def test_joined_datagrams_that_a_ring_refused_are_named(bench):
    """A sender on the same machine hands 7 datagrams to the kernel as one: a socket gets them divided, a ring does not."""
    if not may_open_rings():
        pytest.skip("no right to open a ring: CAP_NET_RAW")
    tables = raw_tables(images=3, stall_timeout_s=2, first_frame=1)
    receiver = bench.receive(bench.config(source={"receive": "packet", "receive_buffer_mib": 32}, **tables))
    udp_segment, to = 103, ("127.0.0.1", bench.port)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for frame in (1, 2, 3):
            datagrams = [jungfrau_packet(frame, packet) for packet in range(128)]
            if frame == 2:
                sender.setsockopt(socket.IPPROTO_UDP, udp_segment, len(datagrams[0]))
                sender.sendto(b"".join(datagrams[:7]), to)
                sender.setsockopt(socket.IPPROTO_UDP, udp_segment, 0)
                datagrams = datagrams[7:]
            for datagram in datagrams:
                sender.sendto(datagram, to)
    code, report = receiver.finish()
    balanced(code, report)
    assert report["receive"]["refused"] == {"joined": 1} and report["images"]["packets_missing"] == 7, report
    found = lost(bench.master)
    (cause,) = found["causes"]
    assert (cause["place"], cause["lost"], cause["certainty"]) == ("damaged", 7, "likely"), cause
    assert found["backend"] == "packet"


def test_a_silent_stream_and_packets_of_another_kind_are_named(bench):
    receiver = bench.receive(bench.config(streams=2, **raw_tables(modules=2, images=5, stall_timeout_s=2, first_frame=1)))
    simulate("jungfrau", "--to", bench.to, "--images", 5, "--rate", 50, "--modules", 2, "--silent", 1)
    receiver.finish()
    causes = lost(bench.master)["causes"]
    assert causes[0]["place"] == "stream" and f":{bench.port + 1}" in causes[0]["why"], causes


@contextlib.contextmanager
def slow_thread(pid, name):
    """The thread of a program gets only what a busy program leaves of one processor: less than a hundredth."""
    processor = max(os.sched_getaffinity(0))
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        os.sched_setaffinity(busy.pid, {processor})
        tasks = pathlib.Path(f"/proc/{pid}/task").iterdir()
        (thread,) = [int(task.name) for task in tasks if (task / "comm").read_text().strip() == name]
        os.sched_setscheduler(thread, os.SCHED_IDLE, os.sched_param(0))
        os.sched_setaffinity(thread, {processor})
        yield
    finally:
        busy.kill()
        busy.wait()


def refused_while(bench, hindered):
    """A run in which images find no slot while `hindered(process)` is entered: the report, and the packets lost by place."""
    tables = raw_tables(buffer_mib=16, first_frame=1)
    tables["processing"]["workers"] = 1
    tables["output"] = {"compression": "none"}
    receiver = bench.receive(bench.config(**tables))
    images = ["--images", "1000000", "--rate", "100", "--quiet"]
    sender = subprocess.Popen([BINARY, "simulate", "jungfrau", "--to", bench.to, *images])
    try:
        receiver.wait_until(lambda p: p["images_written"] > 0)
        with hindered(receiver.process.pid):
            receiver.wait_until(lambda p: p["packets_received"] - p["packets_placed"] >= 100 * 128, timeout=120)
    finally:
        sender.kill()
        sender.wait()
    receiver.signal(INTERRUPT)
    code, report = receiver.finish()
    balanced(code, report)
    assert report["total"]["no_slot"] >= 100 * 128, report
    causes = lost(bench.master)["causes"]
    return report, {cause["place"]: cause["lost"] for cause in causes}


@pytest.mark.alone
def test_images_for_which_the_processors_were_too_slow_found_no_slot(bench):
    report, places = refused_while(bench, lambda pid: slow_thread(pid, "work-0"))
    assert places["slots"] == report["total"]["no_slot"] and "disk" not in places, (places, report)


@pytest.fixture
def small_file_system(bench):
    """A file system over the folder of the bench: a function that holds back what is written to it."""
    with ext4_over(bench.folder):
        yield lambda _: frozen(bench.folder)


@pytest.mark.alone
def test_images_for_which_the_file_was_too_slow_are_named(bench, small_file_system):
    report, places = refused_while(bench, small_file_system)
    assert places["disk"] == report["total"]["no_slot"] and "slots" not in places, (places, report)
    assert report["host"]["file_waited_ms"] > 0 and report["host"]["receive_ms"] > 0


BACKLOG = pathlib.Path("/proc/sys/net/core/netdev_max_backlog")


def packets_without_backlog():
    """Packets for which the backlog of any processor was full: the second column."""
    return sum(int(line.split()[1], 16) for line in pathlib.Path("/proc/net/softnet_stat").read_text().splitlines())


@pytest.fixture
def small_backlog():
    """A function that moves a process into a network whose loopback hands packets to the second processor, which takes
    two at a time. Networks have no limit of their own, so that of the host is changed, and changed back."""
    if not SLOW:
        pytest.skip("slow lane: KONKORDIA_SLOW=1, because it changes net.core.netdev_max_backlog for a moment")
    if os.geteuid() != 0 or not BACKLOG.exists() or shutil.which("ip") is None or len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs root, the network of the host, `ip` of iproute2, and two processors")
    name, system = f"konkordia-doctor-{os.getpid()}", ctypes.CDLL(None, use_errno=True)
    if subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode != 0:
        pytest.skip("network namespaces cannot be made here")

    def enter():
        with open(f"/run/netns/{name}") as network:
            new_network = 0x40000000
            if system.setns(network.fileno(), new_network) != 0:
                raise OSError(ctypes.get_errno(), "setns")

    before = BACKLOG.read_text()
    try:
        steps = "ip link set lo up && echo 2 > /sys/class/net/lo/queues/rx-0/rps_cpus"
        subprocess.run(["ip", "netns", "exec", name, "sh", "-c", steps], check=True)
        BACKLOG.write_text("1")
        yield enter
    finally:
        BACKLOG.write_text(before)
        subprocess.run(["ip", "netns", "delete", name], check=True)


@pytest.mark.alone
def test_packets_for_which_the_backlog_had_no_room_are_named(bench, small_backlog):
    config = bench.config(source={"senders": "any"}, **raw_tables(first_frame=1))
    receiver = bench.receive(config, preexec_fn=small_backlog)
    before, first = packets_without_backlog(), 1
    while packets_without_backlog() < before + 10:
        assert first < 10_000, "the second processor keeps up with the first"
        sent = ["--images", 50, "--rate", 200, "--first-frame", first, "--quiet"]
        program("simulate", "jungfrau", "--to", bench.to, *sent, check=0, preexec_fn=small_backlog)
        first += 50
    receiver.signal(INTERRUPT)
    code, report = receiver.finish()
    balanced(code, report)
    assert report["host"]["host_backlog_dropped"] >= 10, report
    cause = lost(bench.master)["causes"][0]
    assert (cause["place"], cause["certainty"]) == ("backlog", "likely"), cause


def test_images_that_a_full_disk_did_not_take_are_named(bench, small_disk):
    tables = raw_tables(images=200)
    tables["output"] = {"directory": str(small_disk), "compression": "none"}
    receiver = bench.receive(bench.config(**tables))
    simulate("jungfrau", "--to", bench.to, "--images", 200, "--rate", 100)
    code, report = receiver.finish()
    assert code == 6 and report["images"]["unwritten"] > 0
    causes = lost(small_disk / "run_master.h5")["causes"]
    (disk,) = [cause for cause in causes if cause["unit"] == "images"]
    assert (disk["place"], disk["lost"], disk["certainty"]) == ("disk", report["images"]["unwritten"], "counted")


def test_a_run_without_loss_has_no_causes_and_other_files_are_refused(bench, tmp_path):
    receiver = bench.receive(bench.config(**raw_tables(images=3)))
    simulate("jungfrau", "--to", bench.to, "--images", 3, "--rate", 50)
    code, report = receiver.finish()
    balanced(code, report)
    assert code == 0 and set(report["host"]) >= {"host_sockets_full", "host_backlog_dropped", "file_waited_ms"}
    found = lost(bench.master, code=0)
    assert found["causes"] == [] and found["ended"] == "finished"
    assert "Nothing was lost." in program("doctor", "--run", bench.master, check=0).stdout
    (data,) = bench.folder.glob("run_data_*.h5")
    assert "it has no ledger" in program("doctor", "--run", data, check=3).stderr
    other = tmp_path / "other.h5"
    other.write_bytes(jungfrau_packet(1, 0))
    assert "does not begin as an HDF5 file" in program("doctor", "--run", other, check=6).stderr
