"""Four small detectors in one service, two with packets and two with messages. Some runs must lose nothing; others are
there to be attacked."""

import contextlib
import json
import shutil
import socket
import subprocess
import threading
import time

import zmq
from driving import BINARY, free_ports, mount_small_disk, program
from service import Service, free_port, write_config
from streams import Stins, pictures

# On two busy cores a program may have to wait long. Nothing here is slow by itself.
WAIT_S = 120
RATE_HZ = 25
SHAPE = (128, 256)
# Entries of the ledger that must be 0 if nothing was lost. Runs from packets and from messages have some of them each.
LOSSES = ["late", "duplicate", "no_slot", "kernel_dropped", "packets_missing", "parts_missing"]
LOSSES += [f"images_{name}" for name in ("lost", "partial", "discarded", "unwritten", "not_received", "not_taken", "not_stored")]


class Detector:
    """One of the detectors of a service: its folder, with a small disk mounted in it, and its commands."""

    losses = LOSSES

    def __init__(self, folder, name):
        self.name, self.folder = name, folder / name
        self.small_disk = self.folder / "small"
        self.small_disk.mkdir(parents=True)
        self.has_small_disk = mount_small_disk(self.small_disk)
        # `sender` sends the images of the run that is attacked.
        self.service, self.sender, self.runs = None, None, 0

    def command(self, verb, body=None):
        return self.service.command(verb, body, detector=self.name, timeout=WAIT_S)

    def status(self):
        return self.service.status(detector=self.name)

    def ledger(self):
        return self.service.statistics(detector=self.name)["ledger"]

    def until(self, condition):
        end = time.monotonic() + WAIT_S
        while not condition(status := self.status()):
            assert time.monotonic() < end, (self.name, status)
            time.sleep(0.1)
        return status

    def next_prefix(self, on_small_disk=False):
        self.runs += 1
        return f"{'small/' if on_small_disk else ''}run{self.runs}"

    def ready_again(self):
        """Waits until the attacked run is over, and removes its files."""
        self.at_rest()
        for path in [*self.folder.glob("run*"), *self.small_disk.glob("run*")]:
            path.unlink()

    def whole_run(self, images):
        """Makes a run and checks by its status, ledger and file that nothing is lost. Removes the file."""
        prefix = self.next_prefix()
        self.command("arm", {"images": images, "prefix": prefix})
        program(*self.generator(images), "-q", check=0, timeout=images / RATE_HZ + WAIT_S)
        status = self.service.wait(timeout_s=WAIT_S, detector=self.name)
        ledger = self.ledger()
        found = (status["state"], status["severity"], status["images_committed"], status["images_written"], ledger["images_complete"])
        assert found == ("idle", "success", images, images, images), (self.name, status, ledger)
        lost = {name: count for name, count in ledger.items() if count and (name in self.losses or name.startswith("malformed"))}
        assert not lost, (self.name, lost, ledger)
        checked = json.loads(program("check", "--json", status["file"], check=0, timeout=WAIT_S).stdout)
        assert checked["valid"] and checked["whole"] and checked["images_by_status"]["complete"] == images, checked
        for path in self.folder.glob(f"{prefix}_*"):
            path.unlink()

    @contextlib.contextmanager
    def run_of_its_own(self, on_small_disk=False):
        """A run without a planned end from `self.sender`, which can be made to send more than a real detector."""
        self.command("arm", {"images": 0, "prefix": self.next_prefix(on_small_disk)})
        try:
            with self.make_sender() as self.sender:
                self.until(lambda status: status["images_committed"] >= 3)
                yield
        finally:
            # A second cancel does no harm.
            self.command("cancel")

    def at_rest(self):
        """Waits until the detector is idle and has counted what was still on its way."""
        self.until(lambda status: status["state"] == "idle")

    def close(self):
        if self.has_small_disk:
            subprocess.run(["umount", "-l", str(self.small_disk)], check=True)
        shutil.rmtree(self.folder, ignore_errors=True)


class PacketDetector(Detector):
    """Packets over UDP: part of the rows of a module, 128 KiB per image."""

    losses = [*LOSSES, "foreign"]

    def __init__(self, folder, name, model):
        super().__init__(folder, name)
        self.ports = 4 if model == "eiger" else 1
        self.first_port = free_ports(self.ports)
        self.arguments = ["simulate", model, "--rows", 64, *(["--bits", 8] if model == "eiger" else [])]
        write_config(
            folder,
            self.first_port,
            name=f"{name}.toml",
            detector={"type": model, "rows": 64, **({"bits": 8} if model == "eiger" else {})},
            source={"receive_buffer_mib": 16},
            # No packet is lost on the way, but the sender may have to wait for a processor.
            processing={"deadline_ms": 20_000, **({"dtype": "raw"} if model == "jungfrau" else {})},
            output={"directory": str(self.folder), "images_per_file": 50},
            run={"buffer_mib": 32, "stall_timeout_s": 60},
        )
        self.packets_of_a_frame = Packets.of(self)

    def generator(self, images):
        return [*self.arguments, "--to", f"127.0.0.1:{self.first_port}", "--images", images, "--rate", RATE_HZ]

    def make_sender(self):
        return PacketSender(self)

    def refused(self):
        """Packets of this run that came and are in no image. The ledger names the foreign ones only after the run."""
        ledger = self.ledger()
        return ledger["received"] - ledger["placed"]


class Packets:
    """The packets of one frame of `konkordia simulate`, which can be sent again with any frame number."""

    def __init__(self, first_port, packets):
        self.first_port, self.packets = first_port, packets
        self.sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(1 + max(port for port, _ in packets))]

    @classmethod
    def of(cls, detector):
        first, sockets, packets = free_ports(detector.ports), [], []
        for port in range(detector.ports):
            sockets.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            sockets[-1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
            sockets[-1].bind(("127.0.0.1", first + port))
            sockets[-1].setblocking(False)
        sent = program(*detector.arguments, "--to", f"127.0.0.1:{first}", "--images", 1, "--json", "-q", check=0, timeout=WAIT_S).stdout
        for port, receiver in enumerate(sockets):
            with receiver, contextlib.suppress(BlockingIOError):
                while True:
                    packets.append((port, bytearray(receiver.recv(65536))))
        assert len(packets) == json.loads(sent)["packets_sent"], (len(packets), sent)
        return cls(detector.first_port, packets)

    def from_somebody_else(self):
        """The same packets, to be sent from other ports."""
        return Packets(self.first_port, [(port, bytearray(packet)) for port, packet in self.packets])

    def send(self, frame, count=None):
        """Sends all packets, or the first `count`."""
        for port, packet in self.packets[:count]:
            packet[0:8] = frame.to_bytes(8, "little")
            self.sockets[port].sendto(packet, ("127.0.0.1", self.first_port + port))

    def close(self):
        for sender in self.sockets:
            sender.close()


class Sender:
    """Sends an image every 40 ms in its own thread until it is ended, and on request other frames as well."""

    def __init__(self):
        self.number, self.far_ahead, self.problem, self.is_over = 0, None, None, threading.Event()
        self.thread = threading.Thread(target=self._send)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.is_over.set()
        self.thread.join(WAIT_S)
        self.close()
        if self.problem:
            raise self.problem

    def _send(self):
        try:
            while not self.is_over.wait(1 / RATE_HZ):
                self.number += 1
                self.send_image(self.number)
                if (far_ahead := self.far_ahead) and self.number % 5 == 0:
                    far_ahead(self.number)
        except Exception as problem:
            self.problem = problem

    @contextlib.contextmanager
    def also_sending(self, far_ahead):
        """After every fifth image, sends part of the frame that `far_ahead` names. Yields the numbers sent."""
        sent = []

        def send(number):
            sent.append(far_ahead(number))
            self.send_little(sent[-1])

        self.far_ahead = send
        try:
            yield sent
        finally:
            self.far_ahead = None


class PacketSender(Sender):
    frame_max = 2**64 - 1

    def __init__(self, detector):
        super().__init__()
        self.packets = detector.packets_of_a_frame.from_somebody_else()

    def send_image(self, number):
        self.packets.send(number)

    def send_little(self, frame):
        self.packets.send(frame, 3)

    def close(self):
        self.packets.close()


class MessageDetector(Detector):
    """STINS over ZeroMQ, 64 KiB per image."""

    def __init__(self, folder, name):
        super().__init__(folder, name)
        self.address = f"tcp://127.0.0.1:{free_port()}"
        (folder / f"{name}.toml").write_text(
            f'[detector]\ntype = "stream"\n[source]\nprotocol = "stins"\nupstreams = ["{self.address}"]\nbind = true\naccept = "armed"\n'
            f'drain_ms = 500\nqueue_mib = 32\nmessage_mib = 16\n[output]\ndirectory = "{self.folder}"\nprefix = "run"\nimages_per_file = 50\n'
            "[run]\nstall_timeout_s = 60\n"
        )

    def generator(self, images):
        shape = "x".join(map(str, SHAPE))
        return ["stream", "--shape", shape, "--images", images, "--rate", RATE_HZ, "--to", self.address, "--connect"]

    def make_sender(self):
        return MessageSender(self.address)

    def whole_run(self, images):
        refused = self.refused()
        super().whole_run(images)
        # The ledger of a run also counts the foreign messages between the previous run and this one.
        assert self.refused() == refused, (self.name, refused, self.refused())

    def refused(self):
        """Foreign messages since the service began."""
        return self.service.statistics(detector=self.name)["totals"].get("messages_foreign", 0)

    def at_rest(self):
        super().at_rest()
        received, since, end = None, time.monotonic(), time.monotonic() + WAIT_S
        # Messages that arrive after a run count as foreign. If a run began before they arrived, it would count them.
        while time.monotonic() - since < 0.5:
            found = self.service.statistics(detector=self.name)["totals"].get("messages_received", 0)
            if found != received:
                received, since = found, time.monotonic()
            assert time.monotonic() < end, f"messages come and come: {received}"
            time.sleep(0.1)


class MessageSender(Sender):
    # The frame number is in JSON.
    frame_max = 2**63 - 1

    def __init__(self, address):
        super().__init__()
        self.stins, self.pictures = Stins(), pictures(8, SHAPE)
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.PUSH)
        self.socket.linger, self.socket.sndtimeo = 0, 1000 * WAIT_S
        self.socket.connect(address)

    def send_image(self, number):
        if number == 1:
            self.socket.send_multipart(self.stins.start())
        self.socket.send_multipart(self.stins.image(number - 1, self.pictures[number % 8]))

    def send_little(self, frame):
        self.socket.send_multipart(self.stins.image(frame, self.pictures[0]))

    def close(self):
        self.context.destroy(linger=0)


class WholeRuns:
    """Runs of one detector, one after the other in their own thread, until they are ended. None may lose anything."""

    def __init__(self, detector, images_per_run):
        self.detector, self.images_per_run = detector, images_per_run
        self.runs, self.problem, self.is_over = 0, None, threading.Event()
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self):
        try:
            self.detector.ready_again()
            while not self.is_over.is_set():
                self.detector.whole_run(self.images_per_run)
                self.runs += 1
        except BaseException as problem:
            self.problem = problem

    def go_on(self, images):
        """Waits until `images` more images of this run, or that many of a later one, are committed."""
        begun = self.detector.status()

        def has_gone_on(status):
            if self.problem:
                raise self.problem
            if status["run"] == begun["run"]:
                return status["images_committed"] >= begun["images_committed"] + images
            return status["images_committed"] >= images

        self.detector.until(has_gone_on)

    def end(self):
        """Waits for the end of the current run; raises if any run has lost something."""
        self.is_over.set()
        self.thread.join(2 * WAIT_S)
        if self.problem:
            raise self.problem
        assert not self.thread.is_alive()

    def __str__(self):
        return f"{self.detector.name} {self.runs} runs, {self.runs * self.images_per_run} images, 0 lost"


class FourDetectors:
    """One service with two detectors that send packets and two that send messages."""

    def __init__(self, folder):
        self.all, self.service = [], None
        try:
            self.all.append(PacketDetector(folder, "packets_1", "jungfrau"))
            self.all.append(PacketDetector(folder, "packets_2", "eiger"))
            self.all.append(MessageDetector(folder, "messages_1"))
            self.all.append(MessageDetector(folder, "messages_2"))
            self._start(folder)
        except BaseException:
            self.close()
            raise

    def _start(self, folder):
        lines = ['[service]\nlisten = "127.0.0.1:0"\nring_images = 2\n']
        lines += [f'[detectors.{detector.name}]\nconfig = "{detector.name}.toml"\n' for detector in self.all]
        (folder / "four.toml").write_text("".join(lines))
        self.service = Service(folder / "four.toml", timeout=WAIT_S)
        for detector in self.all:
            detector.service = self.service

    def of_kinds(self, kinds):
        return [detector for detector in self.all if isinstance(detector, tuple(kinds))]

    def close(self):
        if self.service and self.service.process.poll() is None:
            self.service.process.kill()
            self.service.process.wait()
        for detector in self.all:
            detector.close()
