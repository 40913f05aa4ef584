"""Senders that would exhaust the memory, the disk or the time of a service. What they can use is bounded, and the
service keeps answering."""

import pathlib
import signal
import threading
import time

import zmq
from attacks import MIB, endless
from service import free_port
from streams import SeriesFile, Stins, pictures

PART = 16 * MIB


def memory_mib(service):
    """Resident memory of the process now, in MiB."""
    text = pathlib.Path(f"/proc/{service.process.pid}/status").read_text()
    return int(next(line for line in text.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024


class Watch:
    """Measures the largest memory of the service during the block."""

    def __init__(self, service):
        self.service, self.most, self.is_over = service, 0, False
        self.before = memory_mib(service)
        self.thread = threading.Thread(target=self.look)

    def look(self):
        while not self.is_over:
            self.most = max(self.most, memory_mib(self.service))
            time.sleep(0.02)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.is_over = True
        self.thread.join()
        print(f"memory: {self.before:.0f} MiB before, {self.most:.0f} MiB at most")

    @property
    def more(self):
        return self.most - self.before


def test_a_message_without_an_end_costs_no_more_memory_than_a_message_may(serve):
    service = serve(source="message_mib = 64\nqueue_mib = 64")
    images = pictures(10)
    with Watch(service) as watch:
        for size in (1000, 100_000):
            sent = endless(service.addresses[0], bytes(size))
            assert sent < 1024 * MIB, "it was never cut off"
            print(f"parts of {size} bytes: cut off after {sent / MIB:.0f} MiB")
        service.send(*Stins(5).series(images))
        file = service.file(1)
    file.equals(images)
    # The message, and what arrived before its size was checked.
    assert watch.more < 500, f"{watch.more} MiB"
    service.until_logged(lambda line: "was disconnected" in line)


def test_many_connections_do_not_multiply_the_queue(serve):
    """Four senders of large messages, and a consumer that takes nothing: the waiting data are bounded."""
    address = f"tcp://127.0.0.1:{free_port()}"
    service = serve(source="queue_mib = 64", extra=f'[[stream]]\nname = "stuck"\naddress = "{address}"\nqueue_mib = 64')
    stins, senders = Stins(5), [service.context.socket(zmq.PUSH) for _ in range(4)]
    for sender in senders:
        sender.linger, sender.sndhwm, sender.sndtimeo = 0, 1, 300
        sender.connect(service.addresses[0])
    # The network holds little, so what the consumer does not take waits in the service.
    consumer = service.context.socket(zmq.PULL)
    consumer.linger, consumer.rcvhwm, consumer.rcvbuf = 0, 1, 4096
    consumer.connect(address)
    service.until_logged(lambda line: "is connected" in line and "stuck" in line)
    with Watch(service) as watch:
        service.send(stins.start())
        header = {"htype": "image", "shape": [4096, 2048], "type": "uint16", "compression": "none"}
        number = 0
        stuck = set()
        while len(stuck) < len(senders):
            for n, sender in enumerate(senders):
                try:
                    sender.send_json(header | {"msg_number": stins.number + number, "frame": number}, zmq.SNDMORE)
                    sender.send(bytes(PART))
                    number += 1
                except zmq.Again:
                    stuck.add(n)
            assert number < 400, "nobody was ever held back"
    print(f"{number} messages were sent")
    # Three messages for each connection (two waiting, one in transfer); the receive queue of 64 MiB; the consumer's
    # queue with five messages at its socket; the newest images, kept for viewers.
    bound = 4 * 3 * 16 + 64 + (64 + 5 * 16) + 256
    assert watch.more < bound + 100, f"{watch.more} MiB"


def test_a_lone_number_far_ahead_makes_no_files_and_cancel_ends_at_once(serve, tmp_path):
    service = serve()
    images = pictures(6)
    for far in (900_000, 2**24 - 5):
        stins = Stins(5)
        numbers = [0, 1, 2, far, 3, 4, 5]
        messages = [stins.start(), *(stins.image(n, images[n % 6]) for n in numbers)]
        run = service.status()["run"]
        service.send(*messages)
        service.until(lambda s: s["run"] > run and s["images_committed"] == 6)
        begun = time.monotonic()
        service.command("cancel")
        took = time.monotonic() - begun
        service.until(lambda s: s["state"] == "idle")
        print(f"frame {far}: cancel took {took:.1f} s")
        assert took < 5
    assert len(list(tmp_path.glob("*_data_*.h5"))) <= 2


def test_cancel_and_sigterm_end_a_service_with_three_thousand_series_behind(serve):
    service = serve()
    images = pictures(2)
    sender = service.context.socket(zmq.PUSH)
    sender.linger, sender.sndhwm = 0, 0
    sender.connect(service.addresses[0])
    for n in range(3000):
        for message in Stins(4 * n).series(images):
            sender.send_multipart(message)
    service.until(lambda s: s["run"] >= 3)
    begun = time.monotonic()
    service.command("cancel")
    cancelled = time.monotonic() - begun
    begun = time.monotonic()
    service.process.send_signal(signal.SIGTERM)
    service.process.wait(60)
    took = time.monotonic() - begun
    print(f"cancel took {cancelled:.1f} s, SIGTERM {took:.1f} s, {service.process.returncode}")
    # Without the limits neither ended within a minute.
    assert cancelled < 15 and took < 15
