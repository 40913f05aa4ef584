//! The process that runs plug-ins of HDF5: reads requests from its standard input, which is a socket, and answers
//! there. It writes no file and uses no network, takes a limited amount of memory, and ends with its parent.
//!
//! | request, little-endian | content |
//! |---|---|
//! | 4 | number of filters, in the order in which they packed |
//! | per filter: 4, 4, 4 each | id, number of parameters, parameters |
//! | 8, 8 | bytes of the image, bytes of the chunk |
//! | the rest | the chunk |
//!
//! An answer is 1 and the image, or 0, the length of a text (4) and the text.

use super::child::{end_with_parent, restrict_or_note};
use super::task::Task;
use crate::console;
use konkordia_core::plan::OtherFilter;
use konkordia_plugin::others::{FILTERS_MAX, Plugins, Step, VARIABLE, decode, folders};
use rustix::process::{Resource, Rlimit, Signal, getpid, kill_process, setrlimit};
use std::io::{self, BufReader, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;

/// The environment variable that marks this process. Its value is the process id of the parent.
pub const STARTED_BY: &str = "KONKORDIA_PLUG_INS_OF";

/// Memory of this process, code included: 40 images of 16 million pixels of 4 bytes.
const MEMORY_BYTES_MAX: u64 = 4 << 30;
/// Parameters of a filter; libhdf5 keeps them in the header of a data set, which is smaller.
const VALUES_MAX: u32 = 1 << 14;
/// HDF5 stores the length of a chunk in 4 bytes.
const CHUNK_BYTES_MAX: u64 = u32::MAX as u64;
/// Bytes of an image: what fits into the memory several times.
const IMAGE_BYTES_MAX: u64 = 1 << 30;

/// Filters, chunk, bytes of the image.
type Request = (Vec<Step>, Vec<u8>, usize);

/// Does this work if this process was started for it.
pub fn replaced() -> Option<ExitCode> {
    let number = std::env::var(STARTED_BY).ok()?;
    let done = end_with_parent(&number, STARTED_BY).map_err(|failure| failure.to_string()).and_then(|_| {
        restrict_or_note(&Task::default());
        let none = Rlimit { current: Some(0), maximum: Some(0) };
        let memory = Rlimit { current: Some(MEMORY_BYTES_MAX), maximum: Some(MEMORY_BYTES_MAX) };
        let limits = setrlimit(Resource::Core, none).and_then(|()| setrlimit(Resource::As, memory));
        limits.map_err(|error| format!("the memory of plug-ins cannot be limited: {error}"))?;
        let socket = io::stdin().as_fd().try_clone_to_owned().map_err(|error| error.to_string())?;
        serve(&UnixStream::from(socket)).map_err(|error| error.to_string())
    });
    Some(match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            console::to_stderr(&why);
            ExitCode::FAILURE
        }
    })
}

/// Answers requests until the parent is gone. A thread of its own reads them, and so sees that while a plug-in never
/// returns: the signal of the kernel at the end of the parent does not come, since Landlock allows the parent none.
fn serve(socket: &UnixStream) -> io::Result<()> {
    let (to, requests) = mpsc::sync_channel(0);
    let mut from = BufReader::new(socket.try_clone()?);
    thread::Builder::new().name("requests".into()).spawn(move || {
        loop {
            let request = read_request(&mut from).transpose();
            let Some(request) = request else { break kill_process(getpid(), Signal::KILL) };
            if to.send(request).is_err() {
                break Ok(());
            }
        }
    })?;
    let mut plugins = Plugins::new(folders(std::env::var_os(VARIABLE).as_deref().map(Path::new)));
    for request in requests {
        let (steps, chunk, bytes) = request?;
        let mut answer = socket;
        match decode(&mut plugins, &steps, &chunk, bytes) {
            Ok(image) => answer.write_all(&[1]).and_then(|()| answer.write_all(&image))?,
            Err(why) => answer.write_all(&[&[0][..], &(why.len() as u32).to_le_bytes(), why.as_bytes()].concat())?,
        }
    }
    Ok(())
}

/// Writes a request; see the head of this file.
pub fn write_request(to: &mut impl Write, filters: &[OtherFilter], chunk: &[u8], image_bytes: u64) -> io::Result<()> {
    let mut head = (filters.len() as u32).to_le_bytes().to_vec();
    for filter in filters {
        head.extend(filter.id.to_le_bytes());
        head.extend((filter.values.len() as u32).to_le_bytes());
        head.extend(filter.values.iter().flat_map(|value| value.to_le_bytes()));
    }
    head.extend(image_bytes.to_le_bytes());
    head.extend((chunk.len() as u64).to_le_bytes());
    to.write_all(&head)?;
    to.write_all(chunk)
}

/// The next request; `None` at the end.
fn read_request(from: &mut impl Read) -> io::Result<Option<Request>> {
    let Some(count) = first_number(from)? else { return Ok(None) };
    if count as usize > FILTERS_MAX {
        return Err(too_large("filters"));
    }
    let mut steps = Vec::new();
    for _ in 0..count {
        let (id, values) = (number(from)? as i32, number(from)?);
        if values > VALUES_MAX {
            return Err(too_large("parameters"));
        }
        steps.push((id, (0..values).map(|_| number(from)).collect::<io::Result<_>>()?));
    }
    let (image, chunk) = (long(from)?, long(from)?);
    if image > IMAGE_BYTES_MAX || chunk > CHUNK_BYTES_MAX {
        return Err(too_large("bytes"));
    }
    let mut bytes = vec![0; chunk as usize];
    from.read_exact(&mut bytes)?;
    Ok(Some((steps, bytes, image as usize)))
}

fn too_large(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("a request has too many {what}"))
}

/// A number, or `None` at the end.
fn first_number(from: &mut impl Read) -> io::Result<Option<u32>> {
    let mut bytes = [0; 4];
    match from.read_exact(&mut bytes) {
        Ok(()) => Ok(Some(u32::from_le_bytes(bytes))),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

fn number(from: &mut impl Read) -> io::Result<u32> {
    let mut bytes = [0; 4];
    from.read_exact(&mut bytes).map(|()| u32::from_le_bytes(bytes))
}

fn long(from: &mut impl Read) -> io::Result<u64> {
    let mut bytes = [0; 8];
    from.read_exact(&mut bytes).map(|()| u64::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_as_it_was_written_and_cut_ones_are_not() {
        let filters = [OtherFilter { id: 32001, values: vec![2, 2, 4] }, OtherFilter { id: -1, values: vec![] }];
        let mut request = Vec::new();
        write_request(&mut request, &filters, &[1, 2, 3], 100).unwrap();
        let read = read_request(&mut &request[..]).unwrap();
        assert_eq!(read, Some((vec![(32001, vec![2, 2, 4]), (-1, vec![])], vec![1, 2, 3], 100)));
        assert_eq!(read_request(&mut &[][..]).unwrap(), None);
        for cut in 4..request.len() {
            assert!(read_request(&mut &request[..cut]).is_err(), "{cut}");
        }
        let huge = [&1u32.to_le_bytes()[..], &7u32.to_le_bytes(), &u32::MAX.to_le_bytes()].concat();
        assert!(read_request(&mut &huge[..]).unwrap_err().to_string().contains("parameters"));
        assert!(read_request(&mut &[255; 4][..]).unwrap_err().to_string().contains("filters"));
    }
}
