//! The results of images in a file of their own, which `konkordia analyse --output` writes: one row for each image.
//!
//! The lists of spots stand where CXI files have results (`/entry_1/result_1`, Maia 2012), under the names of Cheetah.

use std::path::Path;

use hdf5::{Dataset, File, Group};
use konkordia_core::frame_header::ColumnType;
use konkordia_core::results::ResultKind;
use konkordia_core::results::analysis::{CAKE, CAKE_SIGMA};

use super::columns::Column;
use super::error::{Context, Error};
use super::low::{self, Format};
use super::nexus::{self, attribute_text};
use super::results_sparse::SparseRows;
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
    /// Centres of the azimuthal bins of the cake, degrees; empty without one.
    pub cake_azimuth_deg: Vec<f64>,
    /// Names of the regions, in the order of their columns.
    pub regions: Vec<String>,
    /// Rows and columns of the images, if pixels above a level are stored ([`ResultsFile::push_pixels`]).
    pub sparse_shape: Option<[usize; 2]>,
}

/// A file of results while it is written.
pub struct ResultsFile {
    part: Part,
    file: File,
    columns: Vec<(Column, Dataset)>,
    sparse: Option<SparseRows>,
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
            let sparse = about.sparse_shape.map(|shape| SparseRows::create(&group, shape)).transpose()?;
            let columns = columns(kinds, about.cake_azimuth_deg.len()).into_iter().map(|(column, kind)| {
                let set = low::create_column(&group, &column, 1024)?;
                attribute_text(&set, "description", &column.description)?;
                if !kind.unit.is_empty() {
                    attribute_text(&set, "units", kind.unit)?;
                }
                Ok((column, set))
            });
            Ok((columns.collect::<hdf5::Result<Vec<_>>>()?, sparse))
        };
        let (columns, sparse) = make().context(DOING, path)?;
        let waiting = columns.iter().map(|(column, _)| Vec::with_capacity(TOGETHER as usize * column.bytes())).collect();
        Ok(Self { part, file, columns, sparse, waiting, rows: 0, written: 0 })
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

    /// Appends the pixels of an image that are above the level: their numbers in the image, ascending, and their
    /// values. It does nothing if the file was created without them.
    ///
    /// # Errors
    /// The disk does not take them.
    ///
    /// # Panics
    /// If there is not one value for each pixel.
    pub fn push_pixels(&mut self, indices: &[u32], values: &[f64]) -> Result<(), Error> {
        let Some(sparse) = &mut self.sparse else { return Ok(()) };
        sparse.push(indices, values).context(DOING, self.part.target())
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
        let Self { part, file, columns, sparse, .. } = self;
        sparse.map_or(Ok(()), SparseRows::finish).context(DOING, part.target())?;
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
    if !about.cake_azimuth_deg.is_empty() {
        nexus::quantities(group, "cake_azimuth_deg", &about.cake_azimuth_deg, "deg")?;
    }
    if about.regions.is_empty() { Ok(()) } else { nexus::texts(group, "region_names", &about.regions) }
}

/// The number of the image, and one column for each kind. A cake has a dimension for its azimuths.
fn columns(kinds: &[ResultKind], azimuths: usize) -> Vec<(Column, ResultKind)> {
    let image = ResultKind {
        name: "image",
        number: ColumnType::U64,
        length: 1,
        unit: "",
        meaning: "number of the image in its file, from 0",
        counted_by: None,
    };
    let column = |kind: ResultKind| {
        let is_cake = [CAKE.name, CAKE_SIGMA.name].contains(&kind.name) && azimuths > 0;
        let shape = match kind.length {
            _ if kind.is_single() => vec![],
            length if is_cake => vec![azimuths, length / azimuths],
            length => vec![length],
        };
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
            ..ResultsAbout::default()
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
    fn a_cake_has_azimuths_and_sparse_pixels_are_a_matrix() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results.h5");
        let about = ResultsAbout { cake_azimuth_deg: vec![-90.0, 90.0], sparse_shape: Some([3, 5]), ..ResultsAbout::default() };
        let mut file = ResultsFile::create(&path, &[ResultKind { length: 6, ..CAKE }], &about).unwrap();
        let rows: [(&[u32], &[f64]); 3] = [(&[2, 14], &[7.5, 8.0]), (&[], &[]), (&[0], &[9.0])];
        let bits: Vec<u64> = (0..6).map(|n| f64::from(n).to_bits()).collect();
        for (n, (indices, values)) in rows.into_iter().enumerate() {
            file.push(n as u64, &bits).unwrap();
            file.push_pixels(indices, values).unwrap();
        }
        file.finish().unwrap();
        let read = low::open_file(&path).unwrap();
        let group = read.group("entry_1/result_1").unwrap();
        let cake = group.dataset("cake_intensity").unwrap();
        assert_eq!((cake.shape(), cake.read_all::<f64>().unwrap()[9]), (vec![3, 2, 3], 3.0));
        assert_eq!(group.dataset("cake_azimuth_deg").unwrap().read_all::<f64>().unwrap(), [-90.0, 90.0]);
        let matrix = group.group("pixels_above_level").unwrap();
        let whole = |name: &str| matrix.dataset(name).unwrap().read_all::<i64>().unwrap();
        assert_eq!((whole("indptr"), whole("indices")), (vec![0, 2, 2, 3], vec![2, 14, 0]));
        assert_eq!(matrix.dataset("data").unwrap().read_all::<f64>().unwrap(), [7.5, 8.0, 9.0]);
        assert_eq!(matrix.attr("shape").unwrap().read_raw::<i64>().unwrap(), [3, 15]);
        assert_eq!(matrix.attr("image_shape").unwrap().read_raw::<i64>().unwrap(), [3, 5]);
    }

    #[test]
    fn a_folder_that_is_not_there_is_said() {
        let error = ResultsFile::create(Path::new("/nowhere/r.h5"), &kinds(), &ResultsAbout::default()).err().unwrap();
        assert!(error.to_string().contains("/nowhere/r.h5"), "{error}");
    }
}
