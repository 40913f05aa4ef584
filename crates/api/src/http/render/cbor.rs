//! The image message of DECTRIS Stream V2.

use super::pixels::plane;
use crate::http::problem::Problem;
use konkordia_acquire::handle::SharedPlanes;
use konkordia_core::array::{Element, Packing, Shape};
use konkordia_wire::dectris_v2::{Image, Message, Seconds, Series};
use konkordia_wire::stream;

const NS: u64 = 1_000_000_000;

/// The message with one channel, or with all. Pixels stay packed where the format has a name for their packing.
///
/// # Errors
/// If pixels have to be unpacked and cannot be, or the image does not fit into such a message.
pub fn message(planes: &SharedPlanes, only: Option<usize>) -> Result<Vec<u8>, Problem> {
    let (start, image) = (planes.start(), planes.image());
    let chosen = image.channels.iter().enumerate().filter(|(n, _)| only.is_none_or(|only| only == *n));
    let mut names: Vec<String> = Vec::new();
    let mut data: Vec<(Shape, Element, Packing, &[u8])> = Vec::new();
    for (n, channel) in chosen {
        let name = channel.name.to_string();
        names.push(if name.is_empty() || names.contains(&name) { format!("channel_{}", n + 1) } else { name });
        let array = &channel.array;
        let as_it_is = matches!(array.packing, Packing::Lz4 | Packing::BitshuffleLz4 | Packing::BitshuffleZstd)
            && !array.element.is_packed();
        data.push(match &array.pieces[..] {
            [piece] if as_it_is => (array.shape, array.element, array.packing, &piece[..]),
            _ => {
                let pixels = plane(planes, n)?;
                (pixels.shape, pixels.element, Packing::None, pixels.bytes)
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
