"""Files that the built program writes from UDP and from streams, and their images as h5py reads them."""

import pathlib

import h5py
import hdf5plugin  # noqa: F401  registers the filters
import numpy as np

from driving import Bench, free_ports, program, raw_tables, simulate
from streams import StreamService

IMAGES = 5
# Layouts that need no driver of HDF5, and the file to open.
LAYOUTS = {"single": "demo.h5", "vds": "demo_master.h5", "links": "demo_master.h5"}
# NXmx requires these, and only the user can know them.
NAMES = {"sample_name": "nothing", "beamline": "simulation", "source_name": "simulation"}


def by_h5py(master):
    """All images of a run, data file by data file, or from the one stack of all."""
    with h5py.File(master) as file:
        data = file["/entry/data"]
        names = sorted(name for name in data if name.startswith("data_0")) or ["data"]
        return np.concatenate([data[name][()] for name in names])


def make_all(folder):
    """Returns {name: master file}: over UDP, JUNGFRAU in photons (also in the layouts of `repack`) and in raw words, and
    EIGER; over ZeroMQ, STINS, Stream V1, and Stream V2 with two channels."""
    made = {}
    program("demo", "--images", IMAGES, "--dir", folder / "demo", check=0, cwd=folder)
    made["jungfrau-photons"] = folder / "demo/demo_master.h5"
    for layout, name in LAYOUTS.items():
        (folder / layout).mkdir()
        program("repack", made["jungfrau-photons"], "-o", folder / layout, "--layout", layout, check=0)
        made[layout] = folder / layout / name
    eiger = {"detector": {"type": "eiger", "bits": 16, "detector_distance_mm": 100.0, "energy_kev": 12.4}, "run": {"images": IMAGES}}
    for name, kind, tables, streams in [
        ("jungfrau-words", "jungfrau", raw_tables(images=IMAGES), 1),
        ("eiger-counts", "eiger", eiger, 4),
    ]:
        (folder / name).mkdir()
        bench = Bench(folder / name)
        receiver = bench.receive(bench.config(streams=streams, **{**tables, "output": tables.get("output", {}) | NAMES}))
        bits = ["--bits", 16] if kind == "eiger" else []
        simulate(kind, "--to", bench.to, "--images", IMAGES, "--rate", 50, *bits)
        code, report = receiver.finish()
        assert code == 0, report
        made[name] = bench.master
    for protocol, more in [("stins", []), ("stream1", ["--compression", "bslz4"]), ("stream2", ["--compression", "bslz4", "--channels", 2])]:
        (folder / protocol).mkdir()
        # `konkordia stream` listens, as a detector unit does.
        names = "\n".join(f'{key} = "{value}"' for key, value in NAMES.items())
        service = StreamService(folder / protocol, protocol, connect_to=f"tcp://127.0.0.1:{free_ports()}", output=names)
        try:
            options = ["--protocol", protocol, "--shape", "64x96", "--images", IMAGES, *more]
            program("stream", "--to", service.addresses[0], *options, check=0)
            made[protocol] = pathlib.Path(service.taken(1, timeout=60)["file"])
        finally:
            service.close()
    return made
