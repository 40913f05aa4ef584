"""The example of a consumer group (examples/consumer_group.py, docs/downstream.md) behind a running service."""

import contextlib
import json
import os
import subprocess
import sys
import time

from driving import ROOT, free_ports
from streams import SeriesFile, Stins, StreamService, pictures

EXAMPLE = ROOT / "examples/consumer_group.py"
IMAGES = 60


def start(stack, *arguments, **environment):
    command = [sys.executable, EXAMPLE, *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment})

    def stop():
        process.kill()
        process.communicate()

    stack.callback(stop)
    return process


def test_two_groups_get_all_images_though_members_die(tmp_path):
    """Each group has every image once; an image whose member is killed, or stops, goes to another member."""
    with contextlib.ExitStack() as stack:
        streams, members = ([f"tcp://127.0.0.1:{free_ports()}" for _ in range(2)] for _ in range(2))
        groups = "".join(f'[[stream]]\nname = "group{n}"\nprotocol = "stins"\naddress = "{address}"\n' for n, address in enumerate(streams))
        service = StreamService(tmp_path, extra=groups)
        stack.callback(service.close)
        dealers = [start(stack, "deal", *addresses, IMAGES) for addresses in zip(streams, members, strict=True)]
        slow = {"SECONDS_PER_IMAGE": "0.1"}
        killed, stopped, _ = (start(stack, "work", members[0], **slow) for _ in range(3))
        start(stack, "work", members[1])
        service.until(lambda _: all(one["connected"] for one in service.statistics()["consumers"]))
        images = pictures(IMAGES)
        service.send(*Stins().series(images))
        time.sleep(1)
        killed.kill()
        stopped.send_signal(19)  # SIGSTOP: it is there, and says nothing
        start(stack, "work", members[0])
        stored = SeriesFile(service.taken(1)["file"]).equals(images).images
        sums = {n: int(image.sum(dtype="int64")) for n, image in enumerate(stored)}
        for dealer in dealers:
            out, _ = dealer.communicate(timeout=60)
            *lines, account = map(json.loads, out.splitlines())
            assert dealer.returncode == 0 and {line["image"]: line["sum"] for line in lines} == sums
            assert (account["results"], account["doubled"], account["missing"]) == (IMAGES, 0, [])
            assert account["again"] == (2 if dealer is dealers[0] else 0)


def test_an_image_that_no_member_survives_is_named(tmp_path):
    """The others have their results; the exit code says that one is missing."""
    with contextlib.ExitStack() as stack:
        stream, address = (f"tcp://127.0.0.1:{free_ports()}" for _ in range(2))
        service = StreamService(tmp_path, extra=f'[[stream]]\nname = "group"\nprotocol = "stins"\naddress = "{stream}"\n')
        stack.callback(service.close)
        dealer = start(stack, "deal", stream, address, 4)
        service.until(lambda _: service.statistics()["consumers"][0]["connected"])
        # Members that take an image and hold it for ever, until the first image has cost three of them.
        bad = [start(stack, "work", address, SECONDS_PER_IMAGE="1000")]
        service.send(*Stins().series(pictures(4)))
        for _ in range(2):
            time.sleep(2.5)
            bad.append(start(stack, "work", address, SECONDS_PER_IMAGE="1000"))
        time.sleep(2.5)
        start(stack, "work", address)
        out, _ = dealer.communicate(timeout=60)
        *lines, account = map(json.loads, out.splitlines())
        assert dealer.returncode == 1 and account["missing"] == [0] and sorted(line["image"] for line in lines) == [1, 2, 3]
