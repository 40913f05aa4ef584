"""Starts the streaming-receiver of MAX IV as it is installed: run_streaming_receiver.py CONFIGURATION NAME

Two things differ from a machine of MAX IV. It listens on loopback only. And MAX IV's own package bitshuffle, which is
not public, is replaced by the public one with its additions: compressed arrays begin with the 12 bytes of HDF5's
filter, the filter is registered, and two more names exist.
"""

import struct
import sys

import bitshuffle
import hdf5plugin  # noqa: F401  registers the filter
import numpy as np
import uvicorn
import zmq

pack, unpack = bitshuffle.compress_lz4, bitshuffle.decompress_lz4
BLOCK_BYTES = 8192


def compress_lz4(data, *more):
    head = np.frombuffer(struct.pack(">QI", data.nbytes, BLOCK_BYTES), np.uint8)
    return np.concatenate([head, np.asarray(pack(data, *more)).view(np.uint8)])


def decompress_lz4(data, shape, dtype, *more):
    dtype = np.dtype(dtype)
    (block,) = struct.unpack_from(">I", data, 8)
    return unpack(np.frombuffer(data, np.uint8, offset=12), tuple(shape), dtype, block // dtype.itemsize)


bitshuffle.compress_lz4, bitshuffle.decompress_lz4 = compress_lz4, decompress_lz4
bitshuffle.BSHUF_H5FILTER, bitshuffle.BSHUF_H5_COMPRESS_LZ4 = 32008, 2

bind = zmq.Socket.bind
zmq.Socket.bind = lambda self, address: bind(self, address.replace("tcp://*", "tcp://127.0.0.1"))
configure = uvicorn.Config.__init__
uvicorn.Config.__init__ = lambda self, *a, **k: configure(self, *a, **(k | {"host": "127.0.0.1"}))

from streaming_receiver.app.main import main  # noqa: E402  after the changes above

sys.exit(main())
