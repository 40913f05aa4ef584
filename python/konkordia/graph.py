"""Calls a function of a user for the images of a stage of a graph (docs/graph.md).

The program starts it: ``python -c THIS module:name MEMORY_MIB``. Images come at the standard input and go to the standard
output; what the function prints goes to the standard error. The function gets an array and its number, and returns an
array of two dimensions, or None if the image is not wanted.
"""

import importlib
import os
import struct
import sys
import traceback
from collections.abc import Callable
from typing import Any, BinaryIO

HEAD = struct.Struct("<16sQQ")


def _read(stream: BinaryIO, count: int) -> bytes:
    data = stream.read(count)
    if len(data) < count:
        sys.exit(0)
    return data


def _answer(stream: BinaryIO, kind: bytes, data: bytes = b"") -> None:
    stream.write(kind + struct.pack("<Q", len(data)))
    stream.write(data)
    stream.flush()


def _call(function: Callable[..., Any], number: int, data: bytes) -> tuple[bytes, bytes]:
    """Calls the function with the image in these bytes; the answer is a letter and bytes."""
    import numpy as np

    kind, rows, columns = HEAD.unpack_from(data)
    dtype = np.dtype(kind.decode().strip()).newbyteorder("<")
    made = function(np.frombuffer(data, dtype, offset=HEAD.size).reshape(rows, columns), number)
    if made is None:
        return b"N", b""
    made = np.asarray(made)
    if made.ndim != 2 or made.dtype.kind not in "iuf" or made.dtype.itemsize > 8 or made.dtype == np.float16:
        raise TypeError(f"it returned {made.dtype} of shape {made.shape}, and not an image of numbers")
    head = HEAD.pack(made.dtype.name.ljust(16).encode(), *made.shape)
    return b"I", head + np.ascontiguousarray(made, made.dtype.newbyteorder("<")).tobytes()


def main() -> None:
    """Answers until the input ends."""
    where, memory_mib = sys.argv[1], int(sys.argv[2])
    images, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    if memory_mib:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (memory_mib << 20, memory_mib << 20))
    function, why = None, ""
    try:
        sys.path.insert(0, os.getcwd())
        module, name = where.split(":")
        function = getattr(importlib.import_module(module), name)
    except BaseException as error:
        why = f"{where} cannot be loaded: {type(error).__name__}: {error}"
    while True:
        number, length = struct.unpack("<QQ", _read(images, 16))
        data = _read(images, length)
        if function is None:
            _answer(answers, b"F", why.encode())
            continue
        try:
            kind, made = _call(function, number, data)
        except MemoryError:
            _answer(answers, b"F", f"MemoryError: {where} needs more than {memory_mib} MiB".encode())
            # What leaked is given back only by the end of the process.
            os._exit(1)
        except Exception as error:
            traceback.print_exc()
            _answer(answers, b"F", f"{type(error).__name__}: {error}".encode())
        else:
            _answer(answers, kind, made)


if __name__ == "__main__":
    main()
