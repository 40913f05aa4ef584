//! Keys for what is said of each image, and for its analysis while it is measured.

use super::schema_key::{Key, Kind, key};

/// The keys, in the order of the documentation.
pub(super) const KEYS: &[Key] = &[
    key(
        "image_metadata",
        "angle",
        Kind::Flag,
        "false",
        "`angle_deg`: angle of the axis of the sample that turns, as the exposure begins",
    ),
    key(
        "image_metadata",
        "raster_columns",
        Kind::Integer(1, 1_000_000),
        "no raster",
        "`raster_column`, `raster_row`: images of a row of the raster, which is scanned row by row",
    ),
    key("image_metadata", "raster_is_snake", Kind::Flag, "false", "every second row of the raster is scanned backwards"),
    key(
        "image_metadata",
        "pulse_id",
        Kind::Text,
        "not known",
        "`pulse_id`: where the number of the pulse is said. Streams: a JSON pointer (RFC 6901) into what the sender says of an image, for example `/user_data/pulse`. Packets: the name of a column, for example `bunch_id`",
    ),
    key(
        "image_metadata",
        "energy_kev",
        Kind::Text,
        "not known",
        "`energy_kev`: where the photon energy is said, in keV (a place as of `pulse_id`)",
    ),
    key(
        "image_metadata",
        "energy_ev",
        Kind::Text,
        "not known",
        "`energy_kev`: where the photon energy is said, if that is in eV",
    ),
    key(
        "image_metadata",
        "sample_x_um",
        Kind::Text,
        "not known",
        "`sample_x_um`: where the position of the sample along x is said, in micrometres",
    ),
    key("image_metadata", "sample_x_mm", Kind::Text, "not known", "`sample_x_um`: where it is said, if that is in millimetres"),
    key(
        "image_metadata",
        "sample_y_um",
        Kind::Text,
        "not known",
        "`sample_y_um`: where the position of the sample along y is said, in micrometres",
    ),
    key("image_metadata", "sample_y_mm", Kind::Text, "not known", "`sample_y_um`: where it is said, if that is in millimetres"),
    key(
        "analysis",
        "recipe",
        Kind::Path,
        "required",
        "the recipe, a file with `[spots]`, `[azimuthal]` and more; read when a run is armed or a series begins",
    ),
    key(
        "analysis",
        "channel",
        Kind::Text,
        "the first",
        "name of the channel that is analysed, of images with several (threshold_1, threshold_2, ...)",
    ),
    key(
        "analysis",
        "workers",
        Kind::Integer(1, 1024),
        "half of the processors, at least 2",
        "threads that analyse images; all others come before them",
    ),
    key(
        "analysis",
        "queue_images",
        Kind::Integer(1, 1024),
        "16",
        "images that may wait to be analysed; if there are more, the oldest pass without analysis and are counted",
    ),
    key(
        "indexing",
        "program",
        Kind::Texts,
        "required",
        "program with its arguments, started without a shell, that gets the spots of images and indexes them (docs/indexing.md)",
    ),
    key("indexing", "spots_min", Kind::Integer(1, 16_384), "10", "stored spots that an image must have to be handed over"),
    key(
        "indexing",
        "answer_timeout_ms",
        Kind::Integer(1, 5000),
        "1000",
        "longest time for an answer; an image that has none by then goes on without",
    ),
];
