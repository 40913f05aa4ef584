"""Puts the documents of a run (documents.json in a folder) into a tiled server by bluesky's TiledWriter, reads the images
back through tiled, and compares them with those of the file."""

import json
import pathlib
import sys

import h5py
import hdf5plugin  # noqa: F401  registers the filters
import numpy as np
from bluesky.callbacks.tiled_writer import TiledWriter
from tiled.client import from_uri
from tiled.server.simple import SimpleTiledServer

ORDER = ["start", "descriptor", "stream_resource", "stream_datum", "event", "stop"]
folder = pathlib.Path(sys.argv[1])
documents = json.loads((folder / "documents.json").read_text())
with SimpleTiledServer(directory=folder / "tiled", readable_storage=[folder]) as server:
    client = from_uri(server.uri)
    writer = TiledWriter(client)
    for kind, document in sorted((one for one in documents if one[0] in ORDER), key=lambda one: ORDER.index(one[0])):
        writer(kind, document)
    run = client.values().last()
    images = run["main"]["det"].read()
resource = dict(documents)["stream_resource"]
with h5py.File(resource["uri"].removeprefix("file://localhost")) as file:
    expected = file[resource["parameters"]["dataset"]][()]
print(images.shape, images.dtype)
print("equal" if np.array_equal(images.reshape(expected.shape), expected) and images.any() else "DIFFERENT")
