//! What the files of a series hold in addition to those of a run: images of any shape, several chunks per image,
//! channels, the sender's own fields.

use konkordia_core::geometry::{Orientation, Quarter};
use serde_json::{Map, Value, json};

/// Chunks that one image may have.
pub const PIECES_MAX: u32 = 4096;
/// Keys of the lines of a series in the text of a run description.
const KEYS: [&str; 8] = ["series", "series_unique_id", "image_shape", "pieces", "channel", "orientation", "times_from", "fields"];
/// Dimensions of one image.
pub const DIMENSIONS_MAX: usize = 5;

/// See [`super::FileSpec::series`].
#[derive(Clone, Debug, PartialEq)]
pub struct SeriesInfo {
    /// Number of the series at the sender.
    pub series: u64,
    /// Its unique name; may be empty.
    pub unique_id: String,
    /// Dimensions of one image, slowest first, 1 to `DIMENSIONS_MAX` of them.
    pub image_shape: Vec<u64>,
    /// Chunks of one image, in the order in which their pixels follow each other (1 to `PIECES_MAX`).
    pub pieces: u32,
    /// Channels, if the sender has any. With several channels, the first axis of an image counts them.
    pub channels: Vec<ChannelInfo>,
    /// What the sender said of the detector; written as fields of the detector.
    pub fields: Map<String, Value>,
    /// How the images are turned with respect to upright ones, whose rows run to the right and whose columns run down.
    pub orientation: Orientation,
    /// The date from which the times of the images count, ISO 8601, if that is not the start of the series.
    pub times_from: Option<String>,
}

impl Default for SeriesInfo {
    fn default() -> Self {
        Self {
            series: 0,
            unique_id: String::new(),
            image_shape: Vec::new(),
            pieces: 1,
            channels: Vec::new(),
            fields: Map::new(),
            orientation: Orientation::UPRIGHT,
            times_from: None,
        }
    }
}

/// One channel: a threshold, or a difference of two.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChannelInfo {
    /// Its name.
    pub name: String,
    /// Threshold in eV.
    pub threshold_energy_ev: Option<f64>,
    /// Why a pixel is of no use, rows x columns; 0 = good.
    pub pixel_mask: Option<Vec<u32>>,
    /// Factor of each pixel, rows x columns.
    pub flat_field: Option<Vec<f32>>,
}

/// Shape of each of `pieces` equal chunks of an image. Each chunk is one run of consecutive pixels, and the chunks
/// follow each other. `None` if there is no such shape.
pub(crate) fn chunk_shape(image: &[u64], pieces: u32) -> Option<Vec<u64>> {
    let mut left = u64::from(pieces.max(1));
    let mut chunk = image.to_vec();
    for size in &mut chunk {
        if *size > 0 && left % *size == 0 {
            left /= *size;
            *size = 1;
        } else if *size % left == 0 {
            *size /= left;
            return Some(chunk);
        } else {
            return None;
        }
    }
    (left == 1).then_some(chunk)
}

/// Where chunk `piece` begins in an image, one number per dimension.
pub(crate) fn chunk_start(image: &[u64], chunk: &[u64], piece: usize) -> Vec<u64> {
    let mut left = piece as u64;
    let mut start = vec![0; image.len()];
    for axis in (0..image.len()).rev() {
        let along = image[axis] / chunk[axis].max(1);
        start[axis] = left % along.max(1) * chunk[axis];
        left /= along.max(1);
    }
    start
}

/// The text form in a run description.
impl SeriesInfo {
    pub(super) fn each(&self, mut put: impl FnMut(&str, &str)) {
        put("series", &self.series.to_string());
        put("series_unique_id", &self.unique_id);
        put("image_shape", &self.image_shape.iter().map(u64::to_string).collect::<Vec<_>>().join(" "));
        put("pieces", &self.pieces.to_string());
        for channel in &self.channels {
            put("channel", &json!({ "name": channel.name, "threshold_energy_ev": channel.threshold_energy_ev }).to_string());
        }
        if self.orientation != Orientation::UPRIGHT {
            let Orientation { flip_rows, rotate } = self.orientation;
            put("orientation", &format!("{flip_rows} {}", rotate.deg()));
        }
        if let Some(date) = &self.times_from {
            put("times_from", date);
        }
        if !self.fields.is_empty() {
            put("fields", &serde_json::to_string(&self.fields).unwrap_or_default());
        }
    }

    /// Takes one line; false if its key is not one of a series.
    pub(super) fn set(info: &mut Option<Self>, key: &str, value: &str) -> Result<bool, String> {
        fn number<T: std::str::FromStr>(value: &str) -> Result<T, String> {
            value.parse().map_err(|_| "not a number".to_owned())
        }
        if !KEYS.contains(&key) {
            return Ok(false);
        }
        let info = info.get_or_insert_with(Self::default);
        match key {
            "series" => info.series = number(value)?,
            "series_unique_id" => info.unique_id = value.into(),
            "image_shape" => info.image_shape = value.split(' ').map(number).collect::<Result<_, _>>()?,
            "pieces" => info.pieces = number(value)?,
            "channel" => {
                let channel: Value = serde_json::from_str(value).map_err(|error| error.to_string())?;
                info.channels.push(ChannelInfo {
                    name: channel["name"].as_str().unwrap_or_default().into(),
                    threshold_energy_ev: channel["threshold_energy_ev"].as_f64(),
                    ..ChannelInfo::default()
                });
            }
            "times_from" => info.times_from = Some(value.into()),
            "orientation" => {
                let (flip, deg) = value.split_once(' ').ok_or("no orientation")?;
                let rotate = Quarter::from_deg(number(deg)?).ok_or("no quarter turns")?;
                info.orientation = Orientation { flip_rows: number(flip)?, rotate };
            }
            _ => info.fields = serde_json::from_str(value).map_err(|error| error.to_string())?,
        }
        Ok(true)
    }

    /// What is wrong with it, if anything is.
    pub(super) fn problem(&self, rows: u32, columns: u32) -> Option<String> {
        let shape = &self.image_shape;
        let bad = !(1..=DIMENSIONS_MAX).contains(&shape.len()) || shape.contains(&0);
        if bad || !(1..=PIECES_MAX).contains(&self.pieces) || chunk_shape(shape, self.pieces).is_none() {
            return Some(format!("images of shape {shape:?} cannot be stored in {} pieces", self.pieces));
        }
        let last = [if shape.len() > 1 { shape[shape.len() - 2] } else { 1 }, shape[shape.len() - 1]];
        if last != [u64::from(rows), u64::from(columns)] {
            return Some(format!("images of shape {shape:?} do not have {rows} rows and {columns} columns"));
        }
        let pixels = rows as usize * columns as usize;
        let wrong = |channel: &&ChannelInfo| {
            channel.pixel_mask.as_ref().is_some_and(|mask| mask.len() != pixels)
                || channel.flat_field.as_ref().is_some_and(|field| field.len() != pixels)
        };
        let channel = self.channels.iter().find(wrong)?;
        Some(format!("the mask or flat field of channel '{}' does not have {pixels} pixels", channel.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_follow_each_other_in_the_order_of_the_pixels() {
        type Case<'a> = (&'a [u64], u32, Option<&'a [u64]>);
        let cases: &[Case<'_>] = &[
            (&[4, 6], 1, Some(&[4, 6])),
            (&[4, 6], 2, Some(&[2, 6])),
            (&[4, 6], 4, Some(&[1, 6])),
            (&[4, 6], 8, Some(&[1, 3])),
            (&[3, 4, 6], 3, Some(&[1, 4, 6])),
            (&[3, 4, 6], 6, Some(&[1, 2, 6])),
            (&[4, 6], 3, None),
            (&[7], 7, Some(&[1])),
            (&[4], 8, None),
        ];
        for (image, pieces, expected) in cases {
            let chunk = chunk_shape(image, *pieces);
            assert_eq!(chunk.as_deref(), *expected, "{image:?} in {pieces}");
            let Some(chunk) = chunk else { continue };
            // The oracle: the number, within the image, of the first pixel of each chunk.
            let each = image.iter().product::<u64>() / u64::from(*pieces);
            for piece in 0..*pieces as usize {
                let start = chunk_start(image, &chunk, piece);
                let at = start.iter().zip(image.iter()).fold(0, |at, (start, size)| at * size + start);
                assert_eq!(at, piece as u64 * each, "{image:?} in {pieces}, piece {piece}");
            }
        }
    }
}
