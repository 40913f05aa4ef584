"""Writes raw files as other programs do, from their published layouts (slsDetectorPackage 9.2, jungfrau_utils), and the frames to put in."""

import json

import h5py
import numpy as np

ROWS, COLUMNS = 512, 1024
PACKET_BYTES = 8192

HEADER = np.dtype(
    [
        ("frame_number", "<u8"), ("exposure", "<u4"), ("packet_number", "<u4"), ("bunch_id", "<u8"), ("timestamp", "<u8"),
        ("module_id", "<u2"), ("row", "<u2"), ("column", "<u2"), ("spec2", "<u2"), ("daq_info", "<u4"), ("spec4", "<u2"),
        ("detector_type", "u1"), ("version", "u1"),
    ]
)  # fmt: skip
assert HEADER.itemsize == 48


def frames(count, modules=1, seed=1):
    """Words of noise around 3000 ADU with some in G1 and G2: (count, modules, 512, 1024)."""
    rng = np.random.default_rng(seed)
    words = rng.integers(2900, 3300, (count, modules, ROWS, COLUMNS), dtype=np.uint16)
    switched = rng.random((count, modules, ROWS, COLUMNS), dtype=np.float32)
    words[switched > 0.995] |= 0x4000
    words[switched > 0.999] |= 0xC000
    return words


def header(frame, port, caught, interfaces, kind=3):
    """Header of a frame of a port; timestamps and the like are as the simulator of konkordia sends them nowhere compared."""
    h = np.zeros((), HEADER)
    h["frame_number"], h["packet_number"], h["timestamp"], h["bunch_id"] = frame, caught, 1000 * frame, 7 * frame
    h["module_id"], h["row"], h["detector_type"], h["version"] = port // interfaces, port, kind, 2
    return h.tobytes()


def mask_of(packets, lost):
    bits = np.ones(packets, bool)
    bits[list(lost)] = False
    return np.packbits(bits, bitorder="little").tobytes().ljust(64, b"\0")


def tile(words, port, interfaces, lost=()):
    """The bytes of a port's part of one frame of (modules, 512, 1024) words, padded as the receiver does."""
    rows = ROWS // interfaces
    part = words[port // interfaces, (port % interfaces) * rows : (port % interfaces + 1) * rows]
    data = np.frombuffer(part.astype("<u2").tobytes(), "u1").reshape(-1, PACKET_BYTES).copy()
    data[list(lost)] = 0xFF
    return data.tobytes()


def record(words, port, frame, interfaces, lost=()):
    """Header, mask and pixels of one frame of one port."""
    packets = 128 // interfaces
    head = header(frame, port, packets - len(lost), interfaces)
    return head + mask_of(packets, lost) + tile(words, port, interfaces, lost)


def master(version, ports_x, ports_y, interfaces, count, per_file, detector="Jungfrau"):
    """The JSON of the binary writer, key by key as it stands there."""
    rows = ROWS // interfaces
    old = version < 8
    whole = {"xmin": 0, "xmax": ports_x * COLUMNS - 1, "ymin": 0, "ymax": ports_y * rows - 1}
    none = dict.fromkeys(("xmin", "xmax", "ymin", "ymax"), 2**32 - 1)
    scan = {"enable": 0, "dacInd": 0, "start offset": 0, "stop offset": 0, "step size": 0, "dac settle time ns": 0}
    return {
        "Version": version,
        "Timestamp": "Tue Nov 17 10:00:00 2026",
        "Detector Type": detector,
        "Timing Mode": "auto",
        "Geometry": {"x": ports_x, "y": ports_y},
        ("Image Size in bytes" if old else "Image Size"): rows * COLUMNS * 2,
        "Pixels": {"x": COLUMNS, "y": rows},
        "Max Frames Per File": per_file,
        "Frame Discard Policy": "nodiscard",
        "Frame Padding": 1,
        "Scan Parameters": "[disabled]" if old else scan,
        "Total Frames": count,
        **({"Receiver Roi": none} if old else {"Receiver Rois": [whole]}),
        ("Exptime" if old else "Exposure Time"): "10us",
        ("Period" if old else "Acquisition Period"): "1ms",
        "Number of UDP Interfaces": interfaces,
        "Number of rows": 512,
        "Frames in File": count,
        "Frame Header Format": {"Frame Number": "8 bytes", "SubFrame Number/ExpLength": "4 bytes", "Packet Number": "4 bytes"},
    }


def write_sls(folder, words, *, version=7.2, interfaces=1, per_file=10000, numbers=None, lost=None, ports_x=1, name="run", pad=""):
    """An acquisition of (frames, modules, 512, 1024) words; `lost` is {(frame index, port): packets}. Returns the master."""
    count, modules = words.shape[:2]
    numbers = list(numbers or range(1, count + 1))
    lost = lost or {}
    ports = modules * interfaces
    for port in range(ports):
        for sub, start in enumerate(range(0, count, per_file)):
            with open(folder / f"{name}_d{port}_f{sub:{pad or ''}}_0.raw", "wb") as out:
                for n in range(start, min(count, start + per_file)):
                    out.write(record(words[n], port, numbers[n], interfaces, lost.get((n, port), ())))
    path = folder / f"{name}_master_0.json"
    path.write_text(json.dumps(master(version, ports_x, ports // ports_x, interfaces, count, per_file), indent=4))
    return path


def write_sls_hdf5(folder, words, *, interfaces=1, numbers=None, lost=None, name="run"):
    """The same as HDF5 of the slsReceiver: one data file for each port, chunks of one image, parameters beside it."""
    count, modules = words.shape[:2]
    numbers = list(numbers or range(1, count + 1))
    lost = lost or {}
    rows, packets = ROWS // interfaces, 128 // interfaces
    for port in range(modules * interfaces):
        with h5py.File(folder / f"{name}_d{port}_f0_0.h5", "w") as f:
            f.attrs["version"] = 6.6
            data = f.create_dataset("data", (count, rows, COLUMNS), "<u2", maxshape=(None, rows, COLUMNS), chunks=(1, rows, COLUMNS))
            masks = []
            for n in range(count):
                gone = lost.get((n, port), ())
                data[n] = np.frombuffer(tile(words[n], port, interfaces, gone), "<u2").reshape(rows, COLUMNS)
                masks.append(np.frombuffer(mask_of(packets, gone), "V64")[0])
            whole = {"frame number": ("u8", numbers), "timestamp": ("u8", [1000 * n for n in numbers]), "detector specific 1": ("u8", 7)}
            whole |= {"exp length or sub exposure time": ("u4", 0), "packets caught": ("u4", packets), "mod id": ("u2", port // interfaces)}
            whole |= {"row": ("u2", port), "column": ("u2", 0), "detector specific 3": ("u4", 0), "detector type": ("u1", 3)}
            for key, (kind, value) in whole.items():
                f.create_dataset(key, data=np.broadcast_to(np.asarray(value, kind), count))
            # Strings of fixed length with zero bytes inside, which only the low-level interface writes.
            text = h5py.h5t.C_S1.copy()
            text.set_size(64)
            space = h5py.h5s.create_simple((count,))
            mask = h5py.h5d.create(f.id, b"packets caught bit mask", text, space)
            mask.write(h5py.h5s.ALL, h5py.h5s.ALL, np.array(masks, "V64").view("S64"), mtype=text)
    path = folder / f"{name}_master_0.h5"
    with h5py.File(path, "w") as f:
        f.attrs["version"], f.attrs["Version"] = 6.6, 7.2
        detector = f.create_group("/entry/instrument/detector")
        detector.create_dataset("Detector Type", data=np.bytes_(b"Jungfrau".ljust(256, b"\0")), dtype="S256")
        facts = {"Geometry in x axis": 1, "Geometry in y axis": modules * interfaces, "Number of pixels in x axis": COLUMNS}
        facts |= {"Number of pixels in y axis": rows, "Frames in File": count, "Number of UDP Interfaces": interfaces}
        for key, value in facts.items():
            detector.create_dataset(key, data=np.int32(value))
    return path


def write_swissfel(path, words, *, good=None, frame_index=None, detector="JF07T02V01", **storage):
    """A raw file as SwissFEL writes it: (frames, modules, 512, 1024) words as images of modules x 512 rows."""
    count, modules = words.shape[:2]
    with h5py.File(path, "w") as f:
        group = f.create_group(f"/data/{detector}")
        images = words.reshape(count, modules * ROWS, COLUMNS)
        chunks = (1, *images.shape[1:]) if storage else None
        group.create_dataset("data", data=images, chunks=chunks, **storage)
        group.create_dataset("daq_rec", data=np.full((count, 1), 0x100, "<i8"))
        group.create_dataset("frame_index", data=np.asarray(frame_index or range(1, count + 1), "<i8").reshape(-1, 1))
        group.create_dataset("is_good_frame", data=np.asarray(good if good is not None else [1] * count, "<i8").reshape(-1, 1))
        group.create_dataset("pulse_id", data=np.arange(count, dtype="<i8").reshape(-1, 1) + 10**10)
        group.create_dataset("module_map", data=np.arange(modules, dtype="<i8"))
    return path
