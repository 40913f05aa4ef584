"""A map-reduce for dranspose, as a user writes one: the sums of the pixels of two detectors, image by image.

Every result is appended to the file SUMS_FILE as one line: frame numbers and sums of both detectors, and the worker.
"""

import json
import os
import time

from dranspose.data.stream1 import Stream1Data
from dranspose.middlewares.stream1 import parse


class Sums:
    """The map: one image of each detector with the same event number."""

    def __init__(self, parameters=None, context=None, state=None):
        self.name = state.name

    def process_event(self, event, parameters=None, tick=False):
        packets = {name: parse(data) for name, data in event.streams.items()}
        if not all(isinstance(packet, Stream1Data) for packet in packets.values()):
            return None
        time.sleep(float(os.environ.get("SECONDS_PER_EVENT", "0")))
        return {"worker": self.name} | {name: [packet.frame, int(packet.data.sum(dtype="int64"))] for name, packet in packets.items()}


class Table:
    """The reduction: a line for each image."""

    def __init__(self, parameters=None, context=None, state=None):
        pass

    def process_result(self, result, parameters=None):
        with open(os.environ["SUMS_FILE"], "a", encoding="utf-8") as file:
            file.write(json.dumps(result.payload) + "\n")
