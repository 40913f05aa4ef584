"""Files as other programs write them."""

import h5py
import hdf5plugin
import numpy as np


def dectris_legacy(folder, dtype=np.uint16, codec="bslz4", images=7, per_file=3):
    """A series in the legacy layout of the DECTRIS file writer: links data_000001 and so on, detectorSpecific."""
    rng = np.random.default_rng(5)
    frames = rng.poisson(3, (images, 75, 130)).astype(dtype)
    frames[:, 10, :] = np.iinfo(dtype).max
    filters = {
        "bslz4": hdf5plugin.Bitshuffle(nelems=0, cname="lz4"), "lz4": hdf5plugin.LZ4(nbytes=0), "none": {},
        "gzip": {"compression": "gzip", "compression_opts": 4},
    }[codec]
    with h5py.File(folder / "series_5_master.h5", "w") as master:
        entry = master.create_group("entry")
        entry.attrs["NX_class"] = np.bytes_("NXentry")
        data = entry.create_group("data")
        data.attrs["NX_class"] = np.bytes_("NXdata")
        detector = entry.create_group("instrument/detector")
        detector["description"] = "Dectris EIGER2 Si 9M"
        detector["x_pixel_size"] = np.float32(75e-6)
        detector["x_pixel_size"].attrs["units"] = "m"
        detector["detectorSpecific/nimages"] = np.uint32(images)
        detector["detectorSpecific/compression"] = np.bytes_(codec)
        detector["detectorSpecific/pixel_mask"] = np.zeros((75, 130), np.uint32)
        detector["pixel_mask"] = detector["detectorSpecific/pixel_mask"]
        entry["goniometer"] = h5py.SoftLink("/entry/sample/goniometer")
        entry.create_group("sample/goniometer").create_dataset("omega", data=np.arange(images) * 0.1)
        for n, start in enumerate(range(0, images, per_file), 1):
            name = f"series_5_data_{n:06d}.h5"
            part = frames[start : start + per_file]
            with h5py.File(folder / name, "w", libver="earliest") as file:
                group = file.create_group("entry/data")
                file["entry"].attrs["NX_class"] = "NXentry"
                group.attrs["NX_class"] = "NXdata"
                stack = group.create_dataset("data", data=part, maxshape=(None, 75, 130), chunks=(1, 75, 130), fillvalue=3, **filters)
                stack.attrs["image_nr_low"], stack.attrs["image_nr_high"] = np.int32(start + 1), np.int32(start + len(part))
            data[f"data_{n:06d}"] = h5py.ExternalLink(name, "/entry/data/data")
    return folder / "series_5_master.h5", frames


def with_an_endless_heap(path, copy):
    """A copy in which the first entry of each global heap (texts of any length lie there) says that it is free space of
    length zero. libhdf5 1.14 then never comes to the next entry."""
    data = bytearray(path.read_bytes())
    at = -1
    while (at := data.find(b"GCOL\x01", at + 1)) >= 0:
        data[at + 16 : at + 32] = bytes(16)
    copy.write_bytes(data)
    return copy


def with_an_endless_index(path, copy):
    """A copy in which each page of the group indices names itself as its child. libhdf5 1.14 descends until its stack
    overflows."""
    data = bytearray(path.read_bytes())
    at = -1
    while (at := data.find(b"TREE\x00", at + 1)) >= 0:
        data[at + 5] = 1  # not the lowest level
        data[at + 32 : at + 40] = at.to_bytes(8, "little")  # the first page below
    copy.write_bytes(data)
    return copy
