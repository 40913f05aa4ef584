"""Runs in the environment of EXtra-data: reads files with it, draws them with EXtra-geom, and receives with the client of
karabo-bridge. Arguments: what to do, and a folder or an address; results go to a file of numpy."""

import sys
import time

import numpy as np


def classes():
    from extra_data import components

    return {"lpd": components.LPD1M, "dssc": components.DSSC1M, "agipd": components.AGIPD1M}


def files(folder, model, out):
    """All trains of all modules by the class of the detector; a module that is missing becomes 65535."""
    from extra_data import RunDirectory, by_id

    run = RunDirectory(folder)
    detector = classes()[model](run, min_modules=1)
    data = detector.get_array("image.data", unstack_pulses=False, fill_value=65535)
    ids = [int(train) for train in run.train_ids]
    one = classes()[model](run.select_trains(by_id[ids[:1]]), min_modules=1)
    masked = detector.masked_data("image.data", masked_value=0).ndarray(fill_value=65535)
    builder = next(source for source in run.instrument_sources if source.endswith("TRAINS/BUILDER:output"))
    np.savez(
        out,
        data=data.values,
        modules=data.coords["module"].values,
        train=data.coords["train"].values,
        pulse=data.coords["pulse"].values,
        first=one.get_array("image.data", fill_value=65535).values,
        masked=masked,
        ids=ids,
        availability=detector.data_availability(),
        flags=run[builder, "data.moduleFlags"].ndarray(),
    )


def numbers(folder, name, out):
    """A number that others gave about each train."""
    from extra_data import RunDirectory

    run = RunDirectory(folder)
    builder = next(source for source in run.instrument_sources if source.endswith("TRAINS/BUILDER:output"))
    np.savez(out, **{name: run[builder, f"data.injected.{name}"].ndarray()})


def drawn(folder, model, out):
    """The first image of the first train, placed by a geometry and drawn."""
    import matplotlib

    matplotlib.use("Agg")
    import extra_geom
    from extra_data import RunDirectory, stack_detector_data

    run = RunDirectory(folder)
    train_id, data = run.select("*/DET/*", "image.data").train_from_index(0)
    stacked = stack_detector_data(data, "image.data")
    # The fourth axis from the end is that of the raw files.
    stacked = stacked[:, :, 0] if stacked.ndim == 5 and stacked.shape[2] != 16 else stacked
    stacked = np.squeeze(stacked)
    geometry = extra_geom.LPD_1MGeometry.from_quad_positions([(11.4, 299), (-11.5, 8), (254.5, -16), (278.5, 275)])
    image, centre = geometry.position_modules(stacked[0].astype("f4"))
    geometry.plot_data(stacked[0].astype("f4")).figure.savefig(out + ".png")
    np.savez(out, image=image, centre=centre, stacked=stacked, train_id=train_id)


def bridge(address, sock, out, count):
    """So many trains from the bridge, stacked with EXtra-data."""
    from extra_data import stack_detector_data
    from karabo_bridge import Client

    client = Client(address, sock=sock, timeout=30)
    print("ready", flush=True)
    found = {"ids": [], "stacked": [], "missing": [], "injected": [], "time": []}
    for _ in range(int(count)):
        data, meta = client.next()
        builder = next(name for name in data if name.endswith("TRAINS/BUILDER:output"))
        ids = {one["timestamp.tid"] for one in meta.values()}
        assert len(ids) == 1 and all(meta[name]["source"] == name for name in data)
        modules = {name: {"image.data": part["image.data"].astype("f4")} for name, part in data.items() if "/DET/" in name}
        found["ids"].append(ids.pop())
        found["stacked"].append(stack_detector_data(modules, "image.data", modules=16))
        found["missing"].append(data[builder]["modules.missing"] + [-1] * (16 - len(data[builder]["modules.missing"])))
        found["injected"].append(data[builder].get("injected.energy_kev", np.nan))
        found["time"].append(abs(meta[builder]["timestamp"] - time.time()))
    np.savez(out, **found)


if __name__ == "__main__":
    {"files": files, "numbers": numbers, "drawn": drawn, "bridge": bridge}[sys.argv[1]](*sys.argv[2:])
