//! The image message of DECTRIS Stream V2.

use crate::http::problem::Problem;
use axum::body::Bytes;
use konkordia_acquire::handle::Pixels;
use konkordia_core::array::{Element, Packing};
use konkordia_core::image::CommittedImage;
use konkordia_core::series::SeriesStart;
use konkordia_wire::dectris_v2::{Image, Message, Seconds, Series};
use konkordia_wire::stream;

const NS: u64 = 1_000_000_000;

/// The message with one channel, or with all. Pixels stay packed where the format has a name for their packing.
///
/// # Errors
/// If pixels have to be unpacked and cannot be, or the image does not fit into such a message.
pub fn message(start: &SeriesStart, image: &CommittedImage, only: Option<usize>) -> Result<Vec<u8>, Problem> {
    let chosen = image.channels.iter().enumerate().filter(|(n, _)| only.is_none_or(|only| only == *n));
    let mut names: Vec<String> = Vec::new();
    let mut data: Vec<(konkordia_core::array::Shape, Element, Packing, Bytes)> = Vec::new();
    for (n, channel) in chosen {
        let name = channel.name.to_string();
        names.push(if name.is_empty() || names.contains(&name) { format!("channel_{}", n + 1) } else { name });
        let array = &channel.array;
        let as_it_is = matches!(array.packing, Packing::Lz4 | Packing::BitshuffleLz4 | Packing::BitshuffleZstd)
            && array.element != Element::Mono12p;
        data.push(match &array.pieces[..] {
            [piece] if as_it_is => (array.shape, array.element, array.packing, piece.clone()),
            _ => {
                let pixels = Pixels::of(array).map_err(Problem::bad_pixels)?;
                (pixels.shape, pixels.element, Packing::None, pixels.data)
            }
        });
    }
    let bad =
        |why: String| Problem::new("bad_image", format!("the image does not fit Stream V2: {why}"), "ask for another format");
    let mut channels = Vec::new();
    for (name, (shape, element, packing, bytes)) in names.iter().zip(&data) {
        let pixels = stream::Pixels::new_checked(*shape, *element, *packing, bytes, u64::MAX).map_err(bad)?;
        channels.push((name.as_str(), pixels));
    }
    let seconds = |ns: u64| Seconds::new(ns, NS);
    let times = image.times;
    let message = Message::Image(Image {
        series: Series { id: start.series, unique_id: &start.unique_id },
        image_id: image.number,
        real_time: times.and_then(|times| seconds(times.real_ns)),
        series_date: start.facts.start_time.as_deref(),
        start_time: times.and_then(|times| seconds(times.start_ns)),
        stop_time: times.and_then(|times| seconds(times.stop_ns)),
        user_data: None,
        channels,
    });
    let mut out = Vec::new();
    message.build(&mut out).map_err(|refusal| bad(refusal.why))?;
    Ok(out)
}
