//! Windows of messages over several connections at once, each with a thread of its own at both ends: to and fro as
//! `osu_bibw` does, and several one way as `osu_mbw_mr` does.

use super::super::args::NetTransport;
use super::super::links::Link;
use super::super::peer::{Peer, failed};
use super::windows::{Plan, answer_windows, fill};
use konkordia_core::failure::Failure;
use serde_json::{Value, json};
use std::io;
use std::time::Instant;

/// A window has fewer bytes where several are on their way.
const WINDOW_BYTES_MAX: usize = 32 << 20;

/// Which connections are used, and which of them send from the far end to the near one.
#[derive(Clone, Debug)]
pub struct Ways(Vec<Vec<bool>>);

/// What came of one of them.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Of all connections together, from the first message to the last answer.
    pub messages_per_s: f64,
    /// Messages that did not come.
    pub lost: usize,
    pub verified: bool,
}

impl Ways {
    /// To and fro, and so many pairs one way.
    pub fn new(pairs: &[usize]) -> Self {
        Self(std::iter::once(vec![false, true]).chain(pairs.iter().map(|pairs| vec![false; *pairs])).collect())
    }

    /// Connections that are needed.
    pub fn links(&self) -> usize {
        self.0.iter().map(Vec::len).max().unwrap_or(0)
    }

    /// Names, in the order of the measurements.
    pub fn names(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|way| if way.contains(&true) { "to and fro".into() } else { format!("{} pair(s)", way.len()) })
    }

    /// Measures all of them. `link` is the first connection, `more` are the others.
    ///
    /// # Errors
    /// If a connection is broken.
    pub fn measure(
        &self,
        peer: &mut Peer,
        link: &mut Box<dyn Link>,
        more: &mut [Box<dyn Link>],
        plan: &Plan,
    ) -> Result<Vec<Measured>, Failure> {
        self.0.iter().map(|way| measure(way, peer, std::iter::once(&mut *link).chain(&mut *more), plan)).collect()
    }
}

fn measure<'a>(
    way: &[bool],
    peer: &mut Peer,
    links: impl Iterator<Item = &'a mut Box<dyn Link>>,
    plan: &Plan,
) -> Result<Measured, Failure> {
    // REQ speaks first, so nothing comes back on its own.
    if plan.transport == NetTransport::ZmqReq && way.contains(&true) {
        return Ok(Measured { messages_per_s: f64::NAN, lost: 0, verified: true });
    }
    let window = plan.window.min((WINDOW_BYTES_MAX / plan.bytes).max(1));
    let plan = Plan { window, ..*plan };
    let windows = plan.windows + 1;
    peer.tell(&json!({ "test": "ways", "back": way, "bytes": plan.bytes, "window": window, "windows": plan.windows }))?;
    let begin = Instant::now();
    let ends = run(way, links, &plan, false).map_err(|error| failed(&format!("several connections, {plan:?}"), &error))?;
    let seconds = begin.elapsed().as_secs_f64();
    let there = peer.answer()?;
    let lost_there = there["lost"].as_u64().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
    Ok(Measured {
        messages_per_s: (way.len() * windows * window) as f64 / seconds,
        lost: ends.iter().map(|end| end.lost).sum::<usize>() + lost_there,
        verified: there["right"] == true && ends.iter().all(|end| end.right),
    })
}

/// What came of one connection at one end.
struct End {
    lost: usize,
    right: bool,
}

/// Runs this end of all connections, each in a thread.
fn run<'a>(way: &[bool], links: impl Iterator<Item = &'a mut Box<dyn Link>>, plan: &Plan, is_far: bool) -> io::Result<Vec<End>> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = way
            .iter()
            .zip(links)
            .map(|(is_back, link)| {
                scope.spawn(move || -> io::Result<End> {
                    if *is_back == is_far {
                        let (_, lost) = fill(&mut **link, plan)?;
                        return Ok(End { lost, right: true });
                    }
                    let right = answer_windows(&mut **link, plan.bytes, plan.window, plan.windows + 1)?;
                    Ok(End { lost: 0, right })
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

/// The far end of one measurement: whether all that came was right, and how many of its messages did not come.
///
/// # Errors
/// If a connection is broken, or there are too few.
pub fn serve(links: &mut [Box<dyn Link>], order: &Value) -> io::Result<(bool, usize)> {
    let count = |name: &str| order[name].as_u64().and_then(|n| usize::try_from(n).ok()).unwrap_or(0).max(1);
    let way: Vec<bool> = order["back"].as_array().into_iter().flatten().map(|back| back == true).collect();
    if way.len() > links.len() {
        return Err(io::Error::other(format!("{} connections are needed, {} are open", way.len(), links.len())));
    }
    let plan = Plan {
        transport: NetTransport::Tcp,
        bytes: count("bytes"),
        rounds: 0,
        window: count("window"),
        windows: count("windows"),
    };
    let ends = run(&way, links.iter_mut(), &plan, true)?;
    Ok((ends.iter().all(|end| end.right), ends.iter().map(|end| end.lost).sum()))
}

#[cfg(test)]
mod tests {
    use super::super::super::peer::with_peer;
    use super::*;

    #[test]
    fn messages_go_to_and_fro_over_several_connections() {
        use super::super::super::links::{open_far, open_near};
        use konkordia_links::kind::Kind;
        let serve_two: super::super::super::peer::Serve = |peer| {
            let mut links = Vec::new();
            while let Some(order) = peer.hear()? {
                if order["open"].is_null() {
                    let (right, lost) = serve(&mut links, &order).map_err(|error| failed("a test", &error))?;
                    peer.tell(&json!({ "right": right, "lost": lost }))?;
                } else {
                    links.push(open_far(peer, &order)?);
                }
            }
            Ok(())
        };
        // libfabric keeps both ends of its links in processes of their own.
        let is_always_here = |transport: &NetTransport| transport.link().is_none_or(|kind| matches!(kind, Kind::Tcp | Kind::Shm));
        for transport in NetTransport::ALL.into_iter().filter(is_always_here) {
            let measured = with_peer("ways", None, serve_two, |peer| {
                let mut link = open_near(peer, transport, 0)?;
                let mut more = vec![open_near(peer, transport, 1)?, open_near(peer, transport, 2)?];
                let ways = Ways::new(&[1, 3]);
                assert_eq!(ways.names().collect::<Vec<_>>(), ["to and fro", "1 pair(s)", "3 pair(s)"]);
                let plan = Plan::new(transport, 1000, 8, true);
                ways.measure(peer, &mut link, &mut more, &plan)
            });
            for (way, measured) in measured.unwrap().iter().enumerate() {
                assert!(measured.verified && measured.lost == 0, "{transport:?} {measured:?}");
                let is_left_out = transport == NetTransport::ZmqReq && way == 0;
                assert_eq!(measured.messages_per_s > 0.0, !is_left_out, "{transport:?} {measured:?}");
            }
        }
    }
}
