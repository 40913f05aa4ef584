// Reads data files with h5wasm, HDF5 compiled for browsers: prints for each file the shape, the type and a digest of every image.
// usage: node read_with_h5wasm.mjs FOLDER_WITH_NODE_MODULES FILE...
import { createHash } from "node:crypto";
import { pathToFileURL } from "node:url";

const [modules, ...files] = process.argv.slice(2);
const load = (name) => import(pathToFileURL(`${modules}/node_modules/${name}`));
const h5wasm = await load("h5wasm/dist/node/hdf5_hl.js");
const { install_local_plugins } = await load("h5wasm-plugins/index.mjs");
const module = await h5wasm.ready;
install_local_plugins(module);
const digest = (array) => createHash("sha256").update(new Uint8Array(array.buffer, array.byteOffset, array.byteLength)).digest("hex");
const result = {};
for (const path of files) {
    const file = new h5wasm.File(path, "r");
    const data = file.get("/entry/data/data");
    const [images, ...shape] = data.shape;
    const whole = shape.map((length) => [0, length]);
    const digests = [];
    for (let n = 0; n < images; n++) digests.push(digest(data.slice([[n, n + 1], ...whole])));
    result[path] = { shape: data.shape, type: data.dtype, digests };
    file.close();
}
console.log(JSON.stringify(result));
