//! Checksums while a file is repacked: those of the source are compared with its chunks, and the copy gets its own.

use std::path::{Path, PathBuf};

use hdf5::File;

use super::checksum::{self, CHECKSUM, Running};
use super::columns::{Column, ColumnType};
use super::low;
use super::names::parse;
use super::nexus;
use super::paths::{COLUMNS, DESCRIPTION, STACK};
use super::spec::FileSpec;
use super::stacks::{StackLayout, Stacks};

/// The checksums of the images of a stack, with the number of chunks per image; `None` if its file has none.
fn of_source(file: &File, layout: &StackLayout) -> Option<(u64, Vec<u32>)> {
    let images = layout.positions();
    // Files with unreadable checksums have been refused.
    let sums = (layout.name == STACK).then(|| checksum::stored(file, images).ok().flatten()).flatten()?;
    Some((layout.images / images.max(1), sums))
}

/// Compares the chunks of a stack, which come in order, with the checksums of their file.
pub struct Verifier {
    sums: Vec<u32>,
    running: Option<Running>,
}

impl Verifier {
    /// For stack number `stack` of a file.
    pub fn new(source: &Stacks, stack: usize) -> Self {
        let found = source.layout_of(stack).and_then(|layout| of_source(source.file(), layout));
        let (running, sums) = found.map_or((None, Vec::new()), |(pieces, sums)| (Some(Running::new(pieces)), sums));
        Self { sums, running }
    }

    /// Takes chunk `n` of the stack, empty if nothing is stored.
    ///
    /// # Errors
    /// The number of the image that this chunk completes, and a text that says that its bytes are not those that were
    /// written.
    pub fn pass(&mut self, n: u64, chunk: &[u8]) -> Result<(), (u64, String)> {
        let Some((image, found)) = self.running.as_mut().and_then(|running| running.pass(n, chunk)) else { return Ok(()) };
        match self.sums.get(image as usize) {
            Some(written) if *written != found => Err((image, checksum::differs(found, *written))),
            _ => Ok(()),
        }
    }
}

/// Checksums of the chunks that a copy gets.
pub(super) struct Sums {
    stack: usize,
    running: Running,
    sums: Vec<u32>,
}

impl Sums {
    /// For the stack of `source` that has checksums, if one has.
    pub(super) fn new(source: &Stacks) -> Option<Self> {
        let of_stack = |(stack, layout)| of_source(source.file(), layout).map(|(pieces, sums)| (stack, pieces, sums.len()));
        let (stack, pieces, images) = source.layouts().enumerate().find_map(of_stack)?;
        Some(Self { stack, running: Running::new(pieces), sums: vec![0; images] })
    }

    /// Takes chunk `n` of a stack when it is written; the chunks of one stack come in order.
    pub(super) fn pass(&mut self, stack: usize, n: u64, chunk: &[u8]) {
        if stack != self.stack {
            return;
        }
        if let Some((image, sum)) = self.running.pass(n, chunk)
            && let Some(place) = self.sums.get_mut(image as usize)
        {
            *place = sum;
        }
    }

    /// Writes them into the copy, where they replace those of the source.
    pub(super) fn store(&self, file: &File) -> hdf5::Result<()> {
        write(file, 0, &self.sums)
    }
}

fn write(file: &File, first: u64, sums: &[u32]) -> hdf5::Result<()> {
    if sums.is_empty() {
        return Ok(());
    }
    let (kind, shape, name) = (ColumnType::U32, Vec::new(), CHECKSUM.to_owned());
    let column = Column { name, kind, shape, offset: 0, description: checksum::DESCRIPTION.into() };
    let bytes: Vec<u8> = sums.iter().flat_map(|sum| sum.to_le_bytes()).collect();
    low::write_rows(&file.group(COLUMNS)?.dataset(CHECKSUM)?, &column, first, &bytes)
}

/// Replaces the checksums in a master, which has those of all its data files, by the checksums of the copied data
/// files.
pub(super) fn take_over(master: &File, data_files: &[PathBuf]) -> hdf5::Result<()> {
    let Ok(column) = master.dataset(&format!("{COLUMNS}/{CHECKSUM}")) else { return Ok(()) };
    let spec = nexus::read_text(master, DESCRIPTION).and_then(|text| FileSpec::from_text(&text).ok());
    let Some(spec) = spec else { return Ok(()) };
    let images = column.shape().first().map_or(0, |images| *images as u64);
    for path in data_files {
        let Some(number) = number_of(path) else { continue };
        let file = low::open_file(path)?;
        let many = file.dataset(STACK)?.shape().first().map_or(0, |many| *many as u64);
        let first = (number - 1).saturating_mul(u64::from(spec.images_per_file));
        if let Some(sums) = checksum::stored(&file, many).ok().flatten().filter(|_| first.saturating_add(many) <= images) {
            write(master, first, &sums)?;
        }
    }
    Ok(())
}

fn number_of(path: &Path) -> Option<u64> {
    parse(path.file_name()?.to_str()?)?.1.filter(|number| *number > 0)
}
