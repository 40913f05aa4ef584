//! One side of a link, for tests with programs of others (`tests/peers/test_libfabric.py`):
//!
//!     link_peer receive PROVIDER WRITES   what others write goes to stdout: for each event its number, then the slot
//!     link_peer write PROVIDER WRITES     writes WRITES times into the region of the other side
//!
//! The first line on stderr is the port, the last one how it ended. There are 16 slots, and one message for 16 events.

use konkordia_links::kind::{Kind, Listener};
use konkordia_links::{Arrival, Link, LinkError, Region, RemoteAddress};
use std::io::Write;
use std::time::Duration;

const WAIT: Duration = Duration::from_secs(60);
const SLOTS: u32 = 16;
const SLOT_BYTES: usize = 1 << 19;

/// Length and content of a write; the test and the program of C have the same in their own words.
fn content(n: u32) -> Vec<u8> {
    let length = if n % 100 == 7 { 300_000 } else { 1 + n * 7919 % 20_000 };
    (0..length).map(|i| (i.wrapping_mul(31).wrapping_add(n.wrapping_mul(2_654_435_761)) >> 5) as u8).collect()
}

fn accept(provider: &str) -> Result<Box<dyn Link>, LinkError> {
    let any = "127.0.0.1:0".parse().expect("an address");
    let nobody = || LinkError::Refused { link: provider.into(), why: "nobody has connected".into() };
    let mut listener = Listener::bind(Kind::Libfabric { provider: provider.into() }, any)?;
    eprintln!("{}", listener.local_addr()?.port());
    listener.accept(WAIT)?.ok_or_else(nobody)
}

fn next(link: &mut dyn Link) -> Result<Arrival, LinkError> {
    let late = || LinkError::Refused { link: "link_peer".into(), why: format!("nothing came in {} s", WAIT.as_secs()) };
    link.poll(WAIT)?.ok_or_else(late)
}

fn receive(link: &mut dyn Link, writes: u32) -> Result<(), LinkError> {
    let region = link.register(SLOTS as usize * SLOT_BYTES)?;
    link.send(&region.key.to_le_bytes())?;
    let received = receive_events(link, region, writes);
    let mut memory = vec![0; region.length_bytes];
    link.read(region, 0, &mut memory)?;
    eprintln!("bytes that are not 0: {}", memory.iter().filter(|byte| **byte != 0).count());
    received
}

fn receive_events(link: &mut dyn Link, region: Region, writes: u32) -> Result<(), LinkError> {
    let mut out = std::io::stdout().lock();
    let mut bytes = vec![0; SLOT_BYTES];
    for n in 0..writes {
        let Arrival::Event(event) = next(link)? else { panic!("a message from who only writes") };
        let length = content(event).len();
        link.read(region, (event % SLOTS) as usize * SLOT_BYTES, &mut bytes[..length])?;
        out.write_all(&event.to_le_bytes()).and_then(|()| out.write_all(&bytes[..length])).expect("stdout is open");
        if n % SLOTS == SLOTS - 1 {
            link.send(&n.to_le_bytes())?;
        }
    }
    // Nothing but the end may follow.
    match link.poll(WAIT) {
        Err(LinkError::Closed { .. }) => Ok(()),
        Err(error) => Err(error),
        Ok(more) => Err(LinkError::Refused { link: "link_peer".into(), why: format!("{more:?} instead of the end") }),
    }
}

fn write(link: &mut dyn Link, writes: u32) -> Result<(), LinkError> {
    let Arrival::Message(key) = next(link)? else { panic!("an event before the region is known") };
    let key = u64::from_le_bytes(key.try_into().expect("a key has eight bytes"));
    for n in 0..writes {
        let to = RemoteAddress { key, offset_bytes: u64::from(n % SLOTS) * SLOT_BYTES as u64 };
        link.write(&content(n), to, Some(n))?;
        if n % SLOTS == SLOTS - 1 {
            let Arrival::Message(_) = next(link)? else { panic!("an event from who only receives") };
        }
    }
    link.send(b"done")
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [what, provider, writes] = &arguments[..] else { panic!("see the head of this file") };
    let writes: u32 = writes.parse().expect("a number of writes");
    let done = accept(provider).and_then(|mut link| match what.as_str() {
        "receive" => receive(&mut *link, writes),
        _ => write(&mut *link, writes),
    });
    match done {
        Ok(()) => eprintln!("ended well"),
        Err(error) => {
            eprintln!("error: {error}");
            std::process::exit(1);
        }
    }
}
