//! The stages of a message of one packet, from the call of its sender to the event in the thread that waits for it, by
//! time stamps of one clock in both threads: sender and receiver are in this process, over loopback.

use super::super::fabric_args::RdmaOperation;
use super::super::peer::failed;
use super::super::spread::Spread;
use super::ends::Wait;
use super::protocol::{Agreed, Maker, OVERHEAD_BYTES_MAX, Taker, filling, is_message, stamp};
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::ports::Source;
use konkordia_core::text;
use konkordia_picture::{Axis, Picture, Series};
use konkordia_sources::udp::{UdpReceiver, UdpSender};
use konkordia_wire::roce::outer::Outer;
use serde_json::{Value, json};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What has happened at the end of each stage; the first is the beginning.
pub const STAGES: [&str; 7] = ["call", "packet made", "handed to the kernel", "received", "allowed", "in its slot", "event seen"];
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;
/// A message that has not come after this is lost.
const PATIENCE: Duration = Duration::from_secs(20);

/// One ladder.
pub struct Ladder {
    pub operation: RdmaOperation,
    pub wait: Wait,
    pub packet_bytes: usize,
    /// Microseconds from the call to the end of each stage.
    pub at_us: [Spread; STAGES.len()],
    pub verified: bool,
}

/// What the receiving thread tells of the message that came last.
#[derive(Default)]
struct Told {
    /// Nanoseconds since the beginning: received, allowed, in its slot.
    stages_ns: [AtomicU64; 3],
    /// Messages that came.
    events: AtomicU64,
    is_over: AtomicBool,
}

/// Measures so many messages of one operation.
///
/// # Errors
/// If sockets fail, or a message does not come.
pub fn measure(operation: RdmaOperation, packet_bytes: usize, wait: Wait, messages: u64) -> Result<Ladder, Failure> {
    let agreed = Agreed { operation, packet_bytes, message_bytes: packet_bytes, addresses: 16, compares_icrc: true };
    run(agreed, wait, messages)
        .map_err(|error| failed(&format!("the ladder of {}", operation.name()), &error))
        .map(|(at_us, verified)| Ladder { operation, wait, packet_bytes, at_us: at_us.map(Spread::of), verified })
}

type Times = [Vec<f64>; STAGES.len()];

fn run(agreed: Agreed, wait: Wait, messages: u64) -> io::Result<(Times, bool)> {
    let mut receiver = UdpReceiver::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), RECEIVE_BUFFER_BYTES)?;
    let to = receiver.local_addr()?;
    let sender = UdpSender::for_roce(SocketAddrV4::new(Ipv4Addr::LOCALHOST, to.port()))?;
    let outer = Outer::of_udp_socket(sender.local_addr()?, to).expect("both of IPv4");
    let mut taker = Taker::new(agreed, outer);
    let maker = Maker::new(agreed, outer, taker.key());
    let (told, base) = (Told::default(), Instant::now());
    let mut memory = vec![0; agreed.memory_bytes()];
    let now_ns = || base.elapsed().as_nanos() as u64;
    let (sent, received) = std::thread::scope(|scope| {
        let thread = scope.spawn(|| -> io::Result<()> {
            let mut looks = 0;
            while !told.is_over.load(Ordering::Acquire) {
                let count = receiver.receive(wait.time(), &mut |datagram, _| {
                    let received = now_ns();
                    let Some(judged) = taker.judge(datagram) else { return };
                    let allowed = now_ns();
                    memory[judged.offset..judged.offset + judged.payload.len()].copy_from_slice(judged.payload);
                    let placed = now_ns();
                    for (place, stage) in told.stages_ns.iter().zip([received, allowed, placed]) {
                        place.store(stage, Ordering::Relaxed);
                    }
                    told.events.fetch_add(1, Ordering::Release);
                })?;
                if count == 0 {
                    wait.found_nothing(&mut looks);
                }
            }
            Ok(())
        });
        let sent = send_all(maker, sender, &told, messages, now_ns);
        told.is_over.store(true, Ordering::Release);
        (sent, thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    received?;
    let filling = filling(agreed.message_bytes);
    let last = messages.saturating_sub(agreed.addresses as u64)..messages;
    let is_right = |n: u64| is_message(&memory[agreed.offset(n)..][..agreed.message_bytes], n, &filling);
    Ok((sent?, { last }.all(is_right)))
}

/// One message after the other, each when the event of the last one was seen. The first tenth does not count.
fn send_all(mut maker: Maker, mut sender: UdpSender, told: &Told, messages: u64, now_ns: impl Fn() -> u64) -> io::Result<Times> {
    let agreed = maker.agreed();
    let (mut message, mut room) = (filling(agreed.message_bytes), vec![0; agreed.packet_bytes + OVERHEAD_BYTES_MAX]);
    let mut times: Times = Default::default();
    for number in 0..messages {
        stamp(&mut message, number);
        let (mut at, call) = ([0; STAGES.len()], now_ns());
        maker.make(&message, number, &mut room, &mut |packet| {
            at[1] = now_ns();
            sender.send(packet)?;
            at[2] = now_ns();
            Ok(())
        })?;
        let mut looks = 0u64;
        while told.events.load(Ordering::Acquire) <= number {
            std::hint::spin_loop();
            looks += 1;
            // The other thread may need this processor.
            if looks.is_multiple_of(1 << 12) {
                std::thread::yield_now();
                if Duration::from_nanos(now_ns() - call) > PATIENCE {
                    return Err(io::Error::new(io::ErrorKind::TimedOut, format!("message {number} did not come")));
                }
            }
        }
        at[6] = now_ns();
        at[0] = call;
        at[3..6].iter_mut().zip(&told.stages_ns).for_each(|(at, told)| *at = told.load(Ordering::Relaxed));
        if number >= messages.div_ceil(10) {
            times.iter_mut().zip(at).for_each(|(times, at)| times.push(at.saturating_sub(call) as f64 / 1e3));
        }
    }
    Ok(times)
}

impl Ladder {
    fn name(&self) -> String {
        format!("{}, {}", self.operation.name(), self.wait.name())
    }

    /// For programs.
    pub fn to_json(&self) -> Value {
        let stage = |(name, at): (&&str, &Spread)| json!({ "name": name, "at_us": at.to_json() });
        json!({
            "name": format!("{}, {} bytes", self.name(), self.packet_bytes), "packet_bytes": self.packet_bytes,
            "stages": STAGES.iter().zip(&self.at_us).map(stage).collect::<Vec<_>>(), "verified": self.verified,
        })
    }
}

/// For people.
pub fn to_text(ladders: &[Ladder]) -> String {
    let head = ["operation", "bytes"].into_iter().chain(STAGES[1..].iter().copied()).map(str::to_string).collect::<Vec<_>>();
    let line = |ladder: &Ladder| {
        let stages = ladder.at_us[1..].iter().map(|at| at.to_short_text(2));
        [ladder.name(), text::count(ladder.packet_bytes as u64)].into_iter().chain(stages).collect()
    };
    let table = text::table(&std::iter::once(head).chain(ladders.iter().map(line)).collect::<Vec<_>>());
    format!("us from the call of the sender to the end of each stage; both ends in this process\n\n{table}")
}

/// A step for each stage: the time to the right, the stages upwards. `None` of no ladders.
pub fn draw(ladders: &[Ladder]) -> Option<Picture> {
    if ladders.is_empty() {
        return None;
    }
    let steps = |ladder: &Ladder| -> Vec<(f64, f64)> {
        let medians = ladder.at_us.iter().map(|at| at.median).enumerate();
        // Up to a stage when the one before has ended, then to the right while it lasts.
        let mut points = vec![(0.0, 0.0)];
        for (stage, at) in medians.skip(1) {
            let before = points[points.len() - 1].0;
            points.extend([(before, stage as f64), (at, stage as f64)]);
        }
        points
    };
    let names: Vec<String> = ladders.iter().map(Ladder::name).collect();
    let series: Vec<Series<'_>> =
        ladders.iter().zip(&names).map(|(ladder, name)| Series { name, points: steps(ladder), line: true }).collect();
    let (x, y) = (Axis { label: "us since the call", log: false }, Axis { label: "stage", log: false });
    Some(konkordia_picture::chart(&title(), &x, &y, &series))
}

/// What the numbers of the stages mean.
fn title() -> String {
    let stages: Vec<String> = STAGES.iter().enumerate().skip(1).map(|(n, name)| format!("{n} {name}")).collect();
    format!("Software, loopback: {}", stages.join(", "))
}

/// The ladder cannot be measured between two machines.
pub fn refused() -> Failure {
    Failure::new(
        Exit::Usage,
        "the ladder needs both ends in one process, whose threads have one clock",
        "--to names another machine",
        "leave out --to, or ask for --parts rates sizes",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stages_follow_each_other() {
        for operation in [RdmaOperation::Udp, RdmaOperation::WriteImm] {
            let ladder = measure(operation, 1024, Wait::Events, 50).unwrap();
            assert!(ladder.verified);
            let medians: Vec<f64> = ladder.at_us.iter().map(|at| at.median).collect();
            assert_eq!(medians[0], 0.0);
            // The receiver may be faster than the return of the sender's call.
            let mut of_receiver = medians.clone();
            of_receiver.remove(2);
            assert!(of_receiver.is_sorted() && medians[6] > 0.0, "{medians:?}");
            let picture = draw(&[ladder]).unwrap();
            assert!(picture.png().starts_with(b"\x89PNG"));
        }
        assert!(draw(&[]).is_none());
    }
}
