"""Streams through the running service: senders of pyzmq and json only, other people's decoders, readers of files."""

import json
import pathlib
import struct

import bitshuffle
import h5py
import hdf5plugin  # noqa: F401  registers the filters
import numpy as np
import zmq
from driving import program
from service import Service, free_port

ROWS, COLUMNS = 24, 40
SHAPE = (ROWS, COLUMNS)
LOST, COMPLETE, PARTIAL, DISCARDED = range(4)


def addresses(count=1):
    # Not ipc: there libzmq loses the last messages of a sender that ends while the receiver is full.
    found = []
    while len(found) < count:
        address = f"tcp://127.0.0.1:{free_port()}"
        if address not in found:
            found.append(address)
    return found


class StreamService(Service):
    """A service with one stream detector that listens, or connects to a given address. Its files are
    `s_NNNNNN_master.h5` unless a header names them."""

    def __init__(self, folder, protocol="stins", *, upstreams=1, connect_to=None, detector="", source="", output="", run="", extra="", output_folder=None, **options):
        self.folder = pathlib.Path(output_folder or folder)
        self.addresses = [connect_to] if connect_to else addresses(upstreams)
        binds = "" if connect_to else "bind = true\n"
        where = "" if protocol == "directory" else f"upstreams = {json.dumps(self.addresses)}\n{binds}"
        config = pathlib.Path(folder) / "stream.toml"
        config.write_text(
            f'[detector]\ntype = "stream"\n{detector}\n[source]\nprotocol = "{protocol}"\n{where}drain_ms = 500\n{source}\n'
            f'[output]\ndirectory = "{self.folder}"\nprefix = "s"\n{output}\n[run]\n{run}\n{extra}\n'
        )
        self.context, self.senders = zmq.Context(), {}
        super().__init__(config, **options)

    def socket(self, upstream=0, kind=zmq.PUSH):
        """A socket that sends to the service."""
        s = self.context.socket(kind)
        s.linger, s.sndtimeo, s.sndhwm = 20_000, 20_000, 10_000
        s.connect(self.addresses[upstream])
        return s

    def send(self, *messages, upstream=0):
        """Sends over one lasting connection, as detectors do. Messages of two connections have no order among them."""
        if upstream not in self.senders:
            self.senders[upstream] = self.socket(upstream)
        for message in messages:
            self.senders[upstream].send_multipart(message)

    def taken(self, run, severity="success", timeout=20):
        """The status when this run is over."""
        done = self.until(lambda s: s["run"] > run or (s["run"] == run and s["state"] in ("idle", "error")), timeout)
        assert done["run"] == run and done["severity"] == severity, (done, self.log)
        return done

    def file(self, run, **options):
        """The file of a run that must end with this severity (default: success)."""
        return SeriesFile(self.taken(run, **options)["file"])

    def close(self):
        self.context.destroy(linger=0)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class SeriesFile:
    """Images and ledger of a series, read by h5py; `konkordia check` must exit with `check`."""

    def __init__(self, path, check=0):
        self.path = pathlib.Path(path)
        if check is not None:
            program("check", path, check=check)
        with h5py.File(path) as f:
            data = f["/entry/data"]
            self.images = data[data.attrs["signal"]][()]
            self.channels = [name.decode() for name in data["channel"][()]] if "channel" in data else []
            own = f["/entry/konkordia"]
            self.status = own["images/status"][()].tolist()
            self.parts_missing = own["images/parts_missing"][()].tolist()
            self.totals = {name: int(value[()]) for name, value in own["ledger/totals"].items()}
            self.ended = own["ledger/ended"][()].decode()
            self.series = int(own["series"][()])
            self.detector = fields(f["/entry/instrument/detector"])

    def equals(self, expected, status=None):
        """Compares every pixel, type and position; `None` stands for a missing image."""
        assert len(self.images) == len(expected), self.images.shape
        for n, (image, wanted) in enumerate(zip(self.images, expected, strict=True)):
            if wanted is None:
                assert np.all(image == image.flat[0]) and self.status[n] != COMPLETE, n
            else:
                assert image.dtype == wanted.dtype and np.array_equal(image, wanted, equal_nan=wanted.dtype.kind == "f"), n
        assert self.status == (status or [COMPLETE if e is not None else LOST for e in expected])
        return self


def fields(group):
    """The data sets of a group, by name."""
    found = {}
    for name, item in group.items():
        value = fields(item) if isinstance(item, h5py.Group) else item[()]
        found[name] = value.decode() if isinstance(value, bytes) else value
    return found


def chunks(master):
    """Every chunk as stored in the data files."""
    master, found = pathlib.Path(master), []
    with h5py.File(master) as f:
        names = [f["/entry/data"].get(name, getlink=True).filename for name in sorted(f["/entry/data"]) if name.startswith("data_0")]
    for name in names:
        with h5py.File(master.with_name(name)) as f:
            data = f["/entry/data/data"].id
            found += [data.read_direct_chunk(data.get_chunk_info(n).chunk_offset)[1] for n in range(data.get_num_chunks())]
    return found


def bslz4(pixels, header=True):
    """A chunk of HDF5's filter 32008. The bitshuffle package itself does not write the header."""
    packed = bitshuffle.compress_lz4(np.ascontiguousarray(pixels)).tobytes()
    return (struct.pack(">QI", pixels.nbytes, 8192) if header else b"") + packed


def unpacked(packed, dtype, shape):
    """A chunk of HDF5's filter 32008, decoded by the bitshuffle package."""
    total, block = struct.unpack_from(">QI", packed)
    dtype = np.dtype(dtype)
    assert total == np.prod(shape) * dtype.itemsize
    return bitshuffle.decompress_lz4(np.frombuffer(packed, np.uint8, offset=12), shape, dtype, block // dtype.itemsize)


class Stins:
    """STINS messages as specified, numbered over the life of the sender."""

    def __init__(self, number=0):
        self.number = number

    def _message(self, first, *parts):
        first["msg_number"] = self.number
        self.number += 1
        return [json.dumps(first).encode(), *parts]

    def start(self, filename="", metadata=None, **extra):
        """With an empty name the configuration names the file; `None` leaves the key out."""
        first = {"htype": "header", **extra}
        if filename is not None:
            first["filename"] = filename
        return self._message(first, *([json.dumps(metadata).encode()] if metadata is not None else []))

    def image(self, frame, pixels, *, pack=None, pieces=1, **extra):
        parts = np.split(pixels, pieces)
        first = {"htype": "image", "frame": frame, "shape": pixels.shape, "type": str(pixels.dtype), "compression": "none"}
        if pieces > 1:
            first["chunks"] = parts[0].shape
        if pack is not None:
            first["compression"] = "bslz4"
        return self._message({**first, **extra}, *(pack(p) if pack else p.tobytes() for p in parts))

    def end(self):
        return self._message({"htype": "series_end"})

    def series(self, images, filename="", metadata=None, **options):
        return [
            self.start(filename, metadata),
            *(self.image(n, image, **options) for n, image in enumerate(images)),
            self.end(),
        ]


def pictures(count, shape=SHAPE, dtype="uint16", seed=1):
    """Random images: integers from 0 to below 1000 (or half of the type's maximum), floats normally distributed."""
    rng = np.random.default_rng(seed)
    dtype = np.dtype(dtype)
    if dtype.kind == "f":
        return [rng.normal(size=shape).astype(dtype) for _ in range(count)]
    top = np.iinfo(dtype).max // 2
    return [rng.integers(0, min(top, 1000), shape).astype(dtype) for _ in range(count)]


def messages_of(path):
    """The messages of a capture, read as its format is documented."""
    content, at, messages = pathlib.Path(path).read_bytes(), 0, []
    while at < len(content):
        (count,) = struct.unpack_from("<I", content, at)
        at += 4
        parts = []
        for _ in range(count):
            (length,) = struct.unpack_from("<I", content, at)
            parts.append(content[at + 4 : at + 4 + length])
            at += 4 + length
        messages.append(parts)
    assert at == len(content)
    return messages
