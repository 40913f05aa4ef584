"""What two runs of the program must have in common, file by file: every byte of every chunk as stored, every data set with
its filters, attribute and link. What differs between any two runs of one process is left out: where libhdf5 places
objects, which depends on when its cache is emptied; the second in their headers, with its checksum; and what depends on
when and where the program ran (`OF_THE_MOMENT`, the name of the folder)."""

import hashlib
import pathlib

import h5py
import hdf5plugin  # noqa: F401  registers the filters
import numpy as np

OF_THE_MOMENT = ("file_time", "latency")
"""Ends of paths of what depends on when the program ran."""


def content(path):
    """All objects of a file, by path."""
    found = {}

    def attributes(item):
        return {name: repr(np.asarray(value).tolist()) for name, value in item.attrs.items() if name not in OF_THE_MOMENT}

    def walk(group, at):
        for name in group:
            link, place = group.get(name, getlink=True), f"{at}/{name}"
            if place.endswith(OF_THE_MOMENT):
                continue
            if isinstance(link, h5py.ExternalLink):
                found[place] = ("external", link.filename, link.path)
            elif isinstance(link, h5py.SoftLink):
                found[place] = ("soft", link.path)
            elif isinstance(group[name], h5py.Group):
                found[place] = attributes(group[name])
                walk(group[name], place)
            else:
                # The length of a text depends on the name of the folder in it.
                kind = "text" if group[name].dtype.kind == "S" else str(group[name].dtype)
                filters = repr((group[name].chunks, sorted(group[name]._filters.items())))
                found[place] = (group[name].shape, kind, filters, stored(group[name]), attributes(group[name]))

    with h5py.File(path) as file:
        found["/"] = attributes(file)
        walk(file, "")
    return found


def stored(dataset):
    """Its chunks as they are stored; without chunks its values."""
    if dataset.chunks is None or dataset.is_virtual or dataset.ndim < 3:
        value = np.asarray(dataset[()])
        if value.dtype.kind not in "OS":
            return hashlib.sha256(value.tobytes()).hexdigest()
        # The stored configuration names the folder.
        return repr(value.tolist()).replace(str(pathlib.Path(dataset.file.filename).parent), "FOLDER")
    sums = hashlib.sha256()
    for n in range(dataset.id.get_num_chunks()):
        at = dataset.id.get_chunk_info(n).chunk_offset
        mask, chunk = dataset.id.read_direct_chunk(at)
        sums.update(repr((at, mask)).encode() + chunk)
    return sums.hexdigest()


def differences(a, b):
    """What differs between two folders, by file and path."""
    found = [f"only in one: {name}" for name in sorted(set(a) ^ set(b))]
    for name in sorted(set(a) & set(b)):
        if isinstance(a[name], bytes) or isinstance(b[name], bytes):
            found += [name] if a[name] != b[name] else []
        else:
            places = sorted(set(a[name]) | set(b[name]))
            found += [f"{name}{place}" for place in places if a[name].get(place) != b[name].get(place)]
    return found


def folder(path):
    """The contents of all files of a folder, hidden ones too."""
    return {file.name: content(file) if file.suffix == ".h5" else file.read_bytes() for file in sorted(pathlib.Path(path).iterdir())}
