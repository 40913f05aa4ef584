"""Makes frames, and writes raw files as other programs do, from their published layouts (slsDetectorPackage 9.2,
jungfrau_utils)."""

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
    """Words of noise around 3000 ADU, some of them in G1 and G2: (count, modules, 512, 1024)."""
    rng = np.random.default_rng(seed)
    words = rng.integers(2900, 3300, (count, modules, ROWS, COLUMNS), dtype=np.uint16)
    switched = rng.random((count, modules, ROWS, COLUMNS), dtype=np.float32)
    words[switched > 0.995] |= 0x4000
    words[switched > 0.999] |= 0xC000
    return words


def packet_header(frame, packet, *, kind=3, row=0, column=0, module=0, version=2, timestamp=0, bunch=0):
    """Header of a packet. In files of the slsReceiver the number of packets caught replaces the packet number."""
    h = bytearray(HEADER.itemsize)
    for field, value in (("frame_number", frame), ("packet_number", packet), ("bunch_id", bunch), ("timestamp", timestamp), ("module_id", module),
                         ("row", row), ("column", column), ("detector_type", kind), ("version", version)):  # fmt: skip
        size, offset = HEADER.fields[field][0].itemsize, HEADER.fields[field][1]
        h[offset : offset + size] = int(value).to_bytes(size, "little")
    return bytes(h)


def header(frame, port, caught, interfaces, kind=3):
    """Header of a frame of a port. Timestamp and bunch id differ from those of `konkordia simulate`."""
    return packet_header(frame, caught, kind=kind, module=port // interfaces, row=port, timestamp=1000 * frame, bunch=7 * frame)


def mask_of(packets, lost):
    bits = np.ones(packets, bool)
    bits[list(lost)] = False
    return np.packbits(bits, bitorder="little").tobytes().ljust(64, b"\0")


def tile(words, port, interfaces, lost=()):
    """A port's part of one frame of (modules, 512, 1024) words, as bytes. Lost packets are 0xFF, as in the receiver."""
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
    """The JSON master of the receiver's binary writer, key by key."""
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
    """Writes an acquisition of (frames, modules, 512, 1024) words; `lost` is {(frame index, port): packets}. Returns
    the path of the master."""
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


def write_sls_hdf5(folder, words, *, interfaces=1, numbers=None, lost=None, name="run", made_for=None, unused=0):
    """The same as HDF5 of the slsReceiver: one data file for each port, chunks of one image, parameters beside it. With
    `made_for` the data sets have room for so many frames, of which only those of `words` were written; the frame number
    of the others is `unused`."""
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
                values = np.broadcast_to(np.asarray(value, kind), count)
                rest = np.full((made_for or count) - count, unused if key == "frame number" else 0, kind)
                f.create_dataset(key, data=np.concatenate([values, rest]))
            data.resize(made_for or count, axis=0)
            masks += [np.zeros((), "V64")] * ((made_for or count) - count)
            # Strings of fixed length that contain zero bytes. Only the low-level interface of h5py writes them.
            text = h5py.h5t.C_S1.copy()
            text.set_size(64)
            space = h5py.h5s.create_simple((len(masks),))
            mask = h5py.h5d.create(f.id, b"packets caught bit mask", text, space)
            mask.write(h5py.h5s.ALL, h5py.h5s.ALL, np.array(masks, "V64").view("S64"), mtype=text)
    path = folder / f"{name}_master_0.h5"
    with h5py.File(path, "w") as f:
        f.attrs["version"], f.attrs["Version"] = 6.6, 7.2
        detector = f.create_group("/entry/instrument/detector")
        detector.create_dataset("Detector Type", data=np.bytes_(b"Jungfrau".ljust(256, b"\0")), dtype="S256")
        detector.create_dataset("Timestamp", data=np.bytes_(b"Tue Nov 17 10:00:00 2026\n".ljust(256, b"\0")), dtype="S256")
        facts = {"Geometry in x axis": 1, "Geometry in y axis": modules * interfaces, "Number of pixels in x axis": COLUMNS}
        facts |= {"Number of pixels in y axis": rows, "Frames in File": count, "Number of UDP Interfaces": interfaces}
        facts |= {"Total Frames": made_for or count, "Number of rows": 512}
        for key, value in facts.items():
            detector.create_dataset(key, data=np.int32(value))
    return path


def write_swissfel(path, words, *, good=None, frame_index=None, detector="JF07T02V01", **storage):
    """Writes a raw file as SwissFEL does: (frames, modules, 512, 1024) words as images of modules x 512 rows."""
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


def eiger_ports(down, across):
    """Row and column of each port of an EIGER of whole modules, in the order of the receiver: half modules are counted
    down each column first. Lower half modules are mounted upside down, so their left port has the higher column."""
    places = []
    for half in range(2 * down * across):
        row, column = half % (2 * down), half // (2 * down) * 2
        places += [(row, column), (row, column + 1)] if row % 2 == 0 else [(row, column + 1), (row, column)]
    return places


def eiger_bytes(counts, bits):
    """A port's counts as bytes in packets (4 bits: high half of a byte first; 12 bits: three bytes for two pixels)."""
    counts = np.asarray(counts).reshape(-1)
    if bits == 4:
        return (counts[0::2] << 4 | counts[1::2]).astype("u1").tobytes()
    if bits == 12:
        a, b = counts[0::2], counts[1::2]
        return np.stack([a & 0xFF, a >> 8 | (b & 15) << 4, b >> 4], axis=1).astype("u1").tobytes()
    return counts.astype(f"<u{bits // 8}").tobytes()


def eiger_header(frame, place, packets):
    return packet_header(frame, packets, kind=1, row=place[0], column=place[1])


def write_eiger(folder, counts, bits, places, *, ten_giga=True, lost=None, name="e"):
    """Writes an acquisition of an EIGER, (frames, ports, 256, 512) counts, as raw files with the JSON master. `lost` is
    {(frame index, port): packets}."""
    count, ports = counts.shape[:2]
    payload = 4096 if ten_giga else 1024
    packets, lost = 256 * 64 * bits // payload, lost or {}
    for port in range(ports):
        with open(folder / f"{name}_d{port}_f0_0.raw", "wb") as out:
            for n in range(count):
                gone = lost.get((n, port), ())
                data = np.frombuffer(eiger_bytes(counts[n, port], bits), "u1").reshape(packets, payload).copy()
                data[list(gone)] = 0xFF
                out.write(eiger_header(n + 1, places[port], packets - len(gone)) + mask_of(packets, gone) + data.tobytes())
    rows, columns = (max(p[axis] for p in places) + 1 for axis in (0, 1))
    facts = master(7.2, columns, rows, 1, count, 0, "Eiger") | {"Pixels": {"x": 512, "y": 256}, "Dynamic Range": bits, "Ten Giga": int(ten_giga)}
    facts |= {"Image Size in bytes": 256 * 512 * bits // 8, "Number of rows": 256}
    path = folder / f"{name}_master_0.json"
    path.write_text(json.dumps(facts))
    return path


def write_eiger_hdf5(folder, counts, bits, places, *, ten_giga=True, lost=None, name="e"):
    """The same as HDF5 of the slsReceiver: counts of 4 bits two to a byte, counts of 12 bits as 16-bit words."""
    count, ports = counts.shape[:2]
    packets, lost = 256 * 64 * bits // (4096 if ten_giga else 1024), lost or {}
    kind = {4: "u1", 8: "u1", 12: "<u2", 16: "<u2", 32: "<u4"}[bits]
    for port in range(ports):
        with h5py.File(folder / f"{name}_d{port}_f0_0.h5", "w") as f:
            width = 256 if bits == 4 else 512
            data = f.create_dataset("data", (count, 256, width), kind, maxshape=(None, 256, width), chunks=(1, 256, width))
            for n in range(count):
                travels = eiger_bytes(counts[n, port], 16 if bits == 12 else bits)
                data[n] = np.frombuffer(travels, kind).reshape(256, width)
            whole = {"frame number": ("u8", range(1, count + 1)), "timestamp": ("u8", 0), "packets caught": ("u4", packets)}
            whole |= {"row": ("u2", places[port][0]), "column": ("u2", places[port][1]), "detector type": ("u1", 1)}
            for key, (number, value) in whole.items():
                f.create_dataset(key, data=np.broadcast_to(np.asarray(value, number), count))
            text = h5py.h5t.C_S1.copy()
            text.set_size(64)
            mask = h5py.h5d.create(f.id, b"packets caught bit mask", text, h5py.h5s.create_simple((count,)))
            masks = [np.frombuffer(mask_of(packets, lost.get((n, port), ())), "V64")[0] for n in range(count)]
            mask.write(h5py.h5s.ALL, h5py.h5s.ALL, np.array(masks, "V64").view("S64"), mtype=text)
    rows, columns = (max(p[axis] for p in places) + 1 for axis in (0, 1))
    path = folder / f"{name}_master_0.h5"
    with h5py.File(path, "w") as f:
        detector = f.create_group("/entry/instrument/detector")
        detector.create_dataset("Detector Type", data=np.bytes_(b"Eiger".ljust(256, b"\0")), dtype="S256")
        facts = {"Geometry in x axis": columns, "Geometry in y axis": rows, "Number of pixels in x axis": 512}
        facts |= {"Number of pixels in y axis": 256, "Frames in File": count, "Dynamic Range": bits, "Ten Giga Enable": int(ten_giga)}
        for key, value in (facts | {"Number of rows": 256, "Total Frames": count}).items():
            detector.create_dataset(key, data=np.int32(value))
    return path
