"""dranspose, unmodified, reduces the streams of two of our detectors: its controller, ingesters, workers and reducer."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request

import numpy as np
import pytest
from programs import HERE, ROOT, running, wait_until

from ports import free_ports
from streams import SeriesFile, Stins, StreamService, pictures

IMAGES, DETECTORS = 60, ("a", "b")
needs_redis = pytest.mark.skipif(not shutil.which("redis-server"), reason="redis-server is not there: apt-get install redis-server")


class Dranspose:
    """Its services, each as a process of its own, on ports of their own."""

    def __init__(self, folder, stack, seconds_per_event=0.0):
        self.folder, self.stack = folder, stack
        self.redis, self.controller, self.reducer, self.results = (free_ports() for _ in range(4))
        self.sums = folder / "sums.jsonl"
        self.environment = {
            **os.environ, "REDIS_URL": f"redis://127.0.0.1:{self.redis}/0", "REDUCER_URL": f"tcp://127.0.0.1:{self.results}",
            "SUMS_FILE": str(self.sums), "SECONDS_PER_EVENT": str(seconds_per_event), "BUILD_META_FILE": str(folder / "none"),
        }  # fmt: skip
        self.run("redis", shutil.which("redis-server"), "--port", self.redis, "--bind", "127.0.0.1", "--save", "", "--dir", folder)
        wait_until(lambda: b"PONG" in subprocess.run(["redis-cli", "-p", str(self.redis), "ping"], capture_output=True).stdout, what="redis")
        # As `dranspose controller`, whose port is fixed.
        self.run("controller", sys.executable, "-m", "uvicorn", "dranspose.controller:app", "--port", self.controller)
        self.dranspose("reducer", "reducer", "-p", self.reducer, "-c", "dranspose_sums:Table")
        wait_until(lambda: self.config()["reducer"], what="the reducer")

    def run(self, name, *command, **environment):
        process = running(*command, log=self.folder / f"{name}.log", cwd=HERE, env=self.environment | environment)
        return self.stack.enter_context(process)

    def dranspose(self, name, *arguments, **environment):
        return self.run(name, sys.executable, "-m", "dranspose.cli", *arguments, **environment)

    def ingester(self, name, address, again=""):
        url = f"tcp://127.0.0.1:{free_ports()}"
        return self.dranspose(f"ingester-{name}{again}", "ingester", "-c", "ZmqPullSingleIngester", "-u", address, "-n", name, INGESTER_URL=url)

    def worker(self, name):
        return self.dranspose(name, "worker", "-n", name, "-c", "dranspose_sums:Sums")

    def request(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.controller}/api/v1/{path}", data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read())

    def config(self):
        return self.request("config")

    def begin(self, events, workers):
        """Waits until these workers are connected to all ingesters, and gives the map of so many events."""

        def all_there():
            config = self.config()
            seen = [len(ingester["connected_workers"]) for ingester in config["ingesters"]]
            return {w["name"] for w in config["workers"]} == set(workers) and seen == [len(workers)] * len(DETECTORS)

        wait_until(all_there, what=f"the workers {workers}")
        frames = [[{"tags": ["generic"], "constraint": n}] for n in range(events)]
        self.request("sequence", {"parts": {"main": {name: frames for name in DETECTORS}}, "sequence": ["main"]})

    def rows(self):
        """What the reduction has, line by line."""
        text = self.sums.read_text(encoding="utf-8") if self.sums.exists() else ""
        return [json.loads(line) for line in text.splitlines()]


class World:
    """Two detectors whose services send STINS, and dranspose behind them."""

    def __init__(self, tmp_path, stack, seconds_per_event=0.0):
        self.streams = {name: f"tcp://127.0.0.1:{free_ports()}" for name in DETECTORS}
        self.services = {}
        for seed, (name, address) in enumerate(self.streams.items()):
            (tmp_path / name).mkdir()
            extra = f'[[stream]]\nname = "dranspose"\nprotocol = "stins"\naddress = "{address}"\n'
            self.services[name] = StreamService(tmp_path / name, extra=extra)
            stack.callback(self.services[name].close)
        self.images = {name: pictures(IMAGES, seed=seed) for seed, name in enumerate(DETECTORS)}
        self.dranspose = Dranspose(tmp_path, stack, seconds_per_event)

    def connected(self):
        one = lambda service: service.statistics()["consumers"][0]["connected"]  # noqa: E731
        wait_until(lambda: all(one(service) for service in self.services.values()), what="the ingesters at our streams")

    def send(self):
        for name, service in self.services.items():
            service.send(*Stins().series(self.images[name]))

    def files(self):
        return {name: service.taken(1)["file"] for name, service in self.services.items()}

    def is_right(self, rows, files):
        """The answer, from the images in our files: each image once, with the sums of both detectors."""
        stored = {name: SeriesFile(path).equals(self.images[name]).images for name, path in files.items()}
        sums = {name: [[n, int(image.sum(dtype="int64"))] for n, image in enumerate(stored[name])] for name in DETECTORS}
        found = sorted(([row[name] for name in DETECTORS] for row in rows), key=lambda row: row[0][0])
        assert found == [[sums[name][n] for name in DETECTORS] for n in range(IMAGES)]


@pytest.mark.peer("dranspose")
@needs_redis
def test_its_map_reduce_of_two_streams(tmp_path):
    """Its controller, ingesters, workers and reducer reduce the streams of two detectors to the sums in our files."""
    with contextlib.ExitStack() as stack:
        world = World(tmp_path, stack)
        for name, address in world.streams.items():
            world.dranspose.ingester(name, address)
        for name in ("w1", "w2"):
            world.dranspose.worker(name)
        world.dranspose.begin(IMAGES, ["w1", "w2"])
        world.connected()
        world.send()
        wait_until(lambda: len(world.dranspose.rows()) == IMAGES, what="the reduction")
        rows = world.dranspose.rows()
        world.is_right(rows, world.files())
        assert {row["worker"] for row in rows} == {"w1", "w2"}
        wait_until(lambda: world.dranspose.request("progress")["completed_events"] == IMAGES + 2, what="its own count")


@pytest.mark.peer("dranspose")
@needs_redis
def test_a_killed_worker_is_replaced(tmp_path):
    """A worker is killed in mid-run: dranspose loses its events; the missing images are known, sent again from our files
    to a new worker, and the answer is right."""
    with contextlib.ExitStack() as stack:
        world = World(tmp_path, stack, seconds_per_event=0.05)
        dranspose = world.dranspose
        ingesters = [dranspose.ingester(name, address) for name, address in world.streams.items()]
        older = dranspose.worker("w1")
        killed = dranspose.worker("w2")
        dranspose.begin(IMAGES, ["w1", "w2"])
        world.connected()
        world.send()
        wait_until(lambda: len(dranspose.rows()) > 10, what="some results")
        killed.kill()
        # Our side has every image, whatever happens downstream.
        files = world.files()

        # No event of a dead worker is given to another one, and its ingesters end with it: no more results come.
        settled = [0, time.monotonic()]

        def nothing_comes():
            if len(dranspose.rows()) != settled[0]:
                settled[:] = [len(dranspose.rows()), time.monotonic()]
            return time.monotonic() - settled[1] > 5

        wait_until(nothing_comes, what="the end of the results")
        rows = dranspose.rows()
        missing = sorted(set(range(IMAGES)) - {row["a"][0] for row in rows})
        assert missing and len(missing) + len(rows) == IMAGES, "no image is reduced twice"
        assert dranspose.request("progress")["completed_events"] < IMAGES + 2

        # A new worker takes its place, alone, because dranspose would choose between two. The ingesters are started again,
        # at programs that send what is missing.
        for process in (older, *ingesters):
            process.kill()
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
        senders = []
        for name, master in files.items():
            address = f"tcp://127.0.0.1:{free_ports()}"
            command = [sys.executable, ROOT / "examples/send_again.py", master, address, ",".join(map(str, missing))]
            senders.append(stack.enter_context(running(*command, log=tmp_path / f"again-{name}.log", env=environment)))
            dranspose.ingester(name, address, "-again")
        dranspose.worker("w3")
        # Its registrations in redis last for 10 s.
        dranspose.begin(len(missing), ["w3"])

        def all_are_there():
            for name, sender in zip(files, senders):
                assert sender.poll() in (None, 0), (tmp_path / f"again-{name}.log").read_text(encoding="utf-8")
            return len(dranspose.rows()) == IMAGES

        wait_until(all_are_there, what="the images that were missing")
        assert [sender.wait(30) for sender in senders] == [0, 0]
        rows = dranspose.rows()
        assert {row["worker"] for row in rows} == {"w1", "w2", "w3"}
        world.is_right(rows, files)
