//! The results of images in a file of their own, which `konkordia analyse --output` writes: one row for each image.
//!
//! The lists of spots stand where CXI files have results (`/entry_1/result_1`, Maia 2012), under the names of Cheetah.

use std::path::Path;

use hdf5::{Dataset, File, Group};
use konkordia_core::frame_header::ColumnType;
use konkordia_core::results::ResultKind;

use super::columns::Column;
use super::error::{Context, Error};
use super::low::{self, Format};
use super::nexus::{self, attribute_text};
use super::sealed::Part;

const DOING: &str = "write the results";
/// Images whose rows are written together.
const TOGETHER: u64 = 64;

/// What a file of results says beside the results.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResultsAbout {
    /// The program and its version.
    pub software: String,
    /// The files of the images.
    pub source: Vec<String>,
    /// The settings as they were used, as JSON.
    pub settings: String,
    /// Centres of the bins of the profile, and their unit.
    pub profile_axis: Option<(Vec<f64>, &'static str)>,
    /// Names of the regions, in the order of their columns.
    pub regions: Vec<String>,
}

/// A file of results while it is written.
pub struct ResultsFile {
    part: Part,
    file: File,
    columns: Vec<(Column, Dataset)>,
    /// For each column, what waits to be written.
    waiting: Vec<Vec<u8>>,
    rows: u64,
    written: u64,
}

impl ResultsFile {
    /// Creates the file, with a column `image` (its number) and one for each kind of result.
    ///
    /// # Errors
    /// A file of this name exists, or the disk does not take it.
    pub fn create(path: &Path, kinds: &[ResultKind], about: &ResultsAbout) -> Result<Self, Error> {
        let (part, file) = Part::create(path, Format::V18, DOING)?;
        let make = || -> hdf5::Result<_> {
            attribute_text(&file, "creator", &about.software)?;
            let entry = nexus::group(&file, "entry_1", "NXentry")?;
            let group = nexus::group(&entry, "result_1", "NXprocess")?;
            describe(&group, about)?;
            let columns = columns(kinds).into_iter().map(|(column, kind)| {
                let set = low::create_column(&group, &column, 1024)?;
                attribute_text(&set, "description", &column.description)?;
                if !kind.unit.is_empty() {
                    attribute_text(&set, "units", kind.unit)?;
                }
                Ok((column, set))
            });
            columns.collect::<hdf5::Result<Vec<_>>>()
        };
        let columns = make().context(DOING, path)?;
        let waiting = columns.iter().map(|(column, _)| Vec::with_capacity(TOGETHER as usize * column.bytes())).collect();
        Ok(Self { part, file, columns, waiting, rows: 0, written: 0 })
    }

    /// Appends an image: its number, and the bits of its results, kind after kind.
    ///
    /// # Errors
    /// The disk does not take the rows.
    ///
    /// # Panics
    /// If there are more or fewer numbers than the kinds have.
    pub fn push(&mut self, image: u64, bits: &[u64]) -> Result<(), Error> {
        self.waiting[0].extend_from_slice(&image.to_le_bytes());
        let mut rest = bits;
        for ((column, _), waiting) in self.columns.iter().zip(&mut self.waiting).skip(1) {
            let (own, after) = rest.split_at(column.bytes() / 8);
            own.iter().for_each(|number| waiting.extend_from_slice(&number.to_le_bytes()));
            rest = after;
        }
        assert!(rest.is_empty(), "the numbers are those of the kinds");
        self.rows += 1;
        if self.rows - self.written == TOGETHER { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<(), Error> {
        let store = |(column, set): &(Column, Dataset), bytes: &[u8]| {
            low::set_extent(set, self.rows, &column.shape)?;
            low::write_rows(set, column, self.written, bytes)
        };
        let mut all = self.columns.iter().zip(&self.waiting);
        all.try_for_each(|(column, bytes)| store(column, bytes)).context(DOING, self.part.target())?;
        self.waiting.iter_mut().for_each(Vec::clear);
        self.written = self.rows;
        Ok(())
    }

    /// Writes what waits, brings the file to the disk, and gives it its name.
    ///
    /// # Errors
    /// The disk does not take it.
    pub fn finish(mut self) -> Result<(), Error> {
        if self.rows > self.written {
            self.write()?;
        }
        let Self { part, file, columns, .. } = self;
        drop(columns);
        file.close().context(DOING, part.target())?;
        part.seal()?.publish()
    }
}

fn describe(group: &Group, about: &ResultsAbout) -> hdf5::Result<()> {
    nexus::text(group, "program", &about.software)?;
    nexus::text(group, "settings", &about.settings)?;
    nexus::texts(group, "source", &about.source)?;
    if let Some((axis, unit)) = &about.profile_axis {
        nexus::quantities(group, "profile_axis", axis, unit)?;
    }
    if about.regions.is_empty() { Ok(()) } else { nexus::texts(group, "region_names", &about.regions) }
}

/// The number of the image, and one column for each kind.
fn columns(kinds: &[ResultKind]) -> Vec<(Column, ResultKind)> {
    let image = ResultKind {
        name: "image",
        number: ColumnType::U64,
        length: 1,
        unit: "",
        meaning: "number of the image in its file, from 0",
        counted_by: None,
    };
    let column = |kind: ResultKind| {
        let shape = if kind.is_single() { vec![] } else { vec![kind.length] };
        (Column { name: kind.name.into(), kind: kind.number, shape, offset: 0, description: kind.meaning.into() }, kind)
    };
    std::iter::once(image).chain(kinds.iter().copied()).map(column).collect()
}

#[cfg(test)]
mod tests {
    use super::super::bounded::ReadAll;
    use super::super::error::ErrorKind;
    use super::*;
    use konkordia_core::results::analysis;

    fn kinds() -> [ResultKind; 3] {
        [analysis::SPOTS, ResultKind { length: 2, ..analysis::SPOT_X }, ResultKind { length: 1, ..analysis::REGION_SUM }]
    }

    #[test]
    fn a_whole_file_has_a_row_for_each_image() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results.h5");
        let about = ResultsAbout {
            software: "konkordia 1".into(),
            source: vec!["a.cbf".into()],
            settings: "{}".into(),
            profile_axis: Some((vec![0.5, 1.5], "1/A")),
            regions: vec!["beam stop".into()],
        };
        let mut file = ResultsFile::create(&path, &kinds(), &about).unwrap();
        for image in 0..TOGETHER + 3 {
            let bits = [image, (image as f64 + 0.5).to_bits(), 0, 4.0f64.to_bits()];
            file.push(image + 10, if image == 2 { &[0; 4] } else { &bits }).unwrap();
        }
        assert!(!path.exists() && folder.path().join(".results.h5.part").exists());
        file.finish().unwrap();
        assert!(!folder.path().join(".results.h5.part").exists());
        let read = low::open_file(&path).unwrap();
        let group = read.group("entry_1/result_1").unwrap();
        let images = group.dataset("image").unwrap().read_all::<u64>().unwrap();
        assert_eq!((images.len() as u64, images[0], images[2]), (TOGETHER + 3, 10, 12));
        let x = group.dataset("peakXPosRaw").unwrap();
        assert_eq!(x.shape(), [TOGETHER as usize + 3, 2]);
        assert_eq!(x.read_all::<f64>().unwrap()[..6], [0.5, 0.0, 1.5, 0.0, 0.0, 0.0]);
        assert_eq!(group.dataset("region_sum").unwrap().shape(), [TOGETHER as usize + 3]);
        assert_eq!(nexus::read_texts(&group, "region_names").unwrap(), ["beam stop"]);
        assert_eq!(nexus::read_attribute(&group.dataset("profile_axis").unwrap(), "units").unwrap(), "1/A");
        let again = ResultsFile::create(&path, &kinds(), &about).err().unwrap();
        assert!(again.kind == ErrorKind::Exists && again.hint.contains("another name"), "{again}");
    }

    #[test]
    fn a_folder_that_is_not_there_is_said() {
        let error = ResultsFile::create(Path::new("/nowhere/r.h5"), &kinds(), &ResultsAbout::default()).err().unwrap();
        assert!(error.to_string().contains("/nowhere/r.h5"), "{error}");
    }
}
