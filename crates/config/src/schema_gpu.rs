//! Keys for a GPU that makes the images.

use super::schema_key::{Key, Kind, key};

/// The keys, in the order of the documentation.
pub(super) const KEYS: &[Key] = &[
    key("processing", "gpu_number", Kind::Integer(0, 63), "0", "which GPU, counted from 0 as nvidia-smi does"),
    key(
        "processing",
        "gpu_share_percent",
        Kind::Integer(1, 99),
        "50",
        "with gpu+cpu: the part of every image that the GPU makes",
    ),
    key(
        "processing",
        "gpu_input",
        Kind::Choice(&["ring", "copy"]),
        "ring",
        "how the words of frames get to a GPU. ring: it reads them where they were received, if its driver and the machine permit it, and otherwise as copy, which the report says; copy: the threads bring them into memory for the GPU",
    ),
];
