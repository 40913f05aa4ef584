#!/bin/sh
# Slow lane: DIALS from Debian (apt-get install dials python3-dials) imports sample runs as NXmx and finds spots in them.
# usage: dials_check.sh PYTHON SAMPLE_DIRECTORY    (PYTHON has hdf5plugin: DIALS needs its filter to read bslz4)
set -eu
python=$1
samples=$(cd "$2" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
if ! command -v dials.import >/dev/null; then
    echo "skipped: DIALS is not installed (apt-get install dials python3-dials)"
    exit 0
fi
HDF5_PLUGIN_PATH=$("$python" -c 'import hdf5plugin; print(hdf5plugin.PLUGIN_PATH)')
# Debian's DIALS runs on Debian's Python.
PATH=/usr/bin:/bin
export HDF5_PLUGIN_PATH PATH
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
for run in int16 int32 uint16 uint32 float32 virtual many; do
    dials.import "$samples/${run}_master.h5" output.experiments="$run.expt" >"$run.import" 2>&1 || { cat "$run.import"; exit 1; }
    grep -q "FormatNXmx.FormatNXmx'" "$run.import" || { echo "$run: not taken for NXmx"; cat "$run.import"; exit 1; }
    images=10
    [ "$run" = many ] && images=24
    grep -q "num images: $images$" "$run.import" || { echo "$run: wrong number of images"; cat "$run.import"; exit 1; }
    dials.find_spots "$run.expt" nproc=1 output.reflections="$run.refl" >"$run.spots" 2>&1 || { cat "$run.spots"; exit 1; }
    grep -q "^Saved [0-9]* reflections" "$run.spots" || { cat "$run.spots"; exit 1; }
    echo "$run: $images images, $(grep "^Saved" "$run.spots")"
done
/usr/bin/python3 "$here/dials_pixels.py" "$samples"
