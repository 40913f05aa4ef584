//! A simulated detector that writes its frames by RoCEv2 instead of sending the packets of its family.

use super::detector::wrong;
use super::feed::Feed;
use super::frames::{self, Pace};
use super::link::fault_model_of;
use super::roce_args::RoceArgs;
use super::send::Senders;
use crate::cli::SendArgs;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::tile::{RemotePages, TileFormat};
use konkordia_sim::fault::{FaultLink, FaultModel};
use konkordia_sim::packet::HEADER_BYTES;
use konkordia_sim::roce::RoceModel;
use std::net::SocketAddr;

/// Writes so many images of `feed`, whose tiles have this form.
pub fn write(args: &SendArgs, to: SocketAddr, feed: &mut Feed, tile: TileFormat, images: u64) -> Result<Exit, Failure> {
    let refused = [
        (args.foreign > 0.0, "--foreign"),
        (args.restart_at.is_some(), "--restart-at"),
        (args.first_frame.is_some(), "--first-frame"),
    ];
    if let Some((_, option)) = refused.iter().find(|(is_given, _)| *is_given) {
        return Err(wrong(&format!("{option} changes headers that a detector with --roce does not send")));
    }
    let SocketAddr::V4(to) = to else { return Err(wrong("--roce needs an address of IPv4")) };
    let model = model(&args.roce, tile, args.rate_hz())?;
    let (pixel_bytes, streams) = (tile.tile_bytes() as usize, feed.streams());
    let mut senders = Senders::roce(to, streams, &args.silent)?;
    let from = senders.local_addresses()?;
    let mut link = FaultLink::new(&FaultModel { corrupt_payload: args.corrupt, ..fault_model_of(&args.faults) });
    let pace = Pace { frames: images, rate_hz: args.rate_hz(), name: "images", is_quiet: args.quiet || args.json };
    let datagram_bytes = feed.datagram_bytes;
    let mut pixels = Vec::with_capacity(pixel_bytes);
    let datagrams = |stream: usize, image: u64| {
        pixels.clear();
        feed.image(image)[stream]
            .chunks_exact(datagram_bytes)
            .for_each(|datagram| pixels.extend_from_slice(&datagram[HEADER_BYTES..]));
        model.datagrams(stream, image, &pixels, from[stream], to)
    };
    let sent = frames::send(&pace, streams, &mut senders, &mut link, datagrams)?;
    let packets = model.packets(pixel_bytes);
    frames::report(&pace, (streams, packets), &sent, &link.log().counts, args.json.then_some(&[][..]));
    Ok(Exit::Complete)
}

fn model(args: &RoceArgs, tile: TileFormat, rate_hz: f64) -> Result<RoceModel, Failure> {
    let &RoceArgs { queue_pair, memory_key: key, memory_address: address, pages, path_mtu, .. } = args;
    let written = tile.by_rdma(path_mtu, RemotePages { queue_pair, key, address, pages, has_outer_headers: false });
    let written = written.ok_or_else(|| wrong("--path-mtu makes more than 512 packets of a frame, or the readout is partial"))?;
    Ok(RoceModel {
        queue_pair,
        key,
        address,
        pages,
        page_bytes: written.page_bytes(),
        path_mtu: path_mtu as usize,
        first_sequence: args.first_psn,
        period_ns: if rate_hz > 0.0 { (1e9 / rate_hz) as u64 } else { 0 },
    })
}
