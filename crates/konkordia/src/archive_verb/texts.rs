//! The texts that lie in every bag.

const README: &str = "\
This folder is a bag (BagIt, RFC 8493) of data of X-ray pixel detectors, made by konkordia archive.

What is here
  data/                    the files
  provenance.json          for each file: where it comes from, the SHA-256 of its source, and what was done to it
  bag-info.txt             date, licence (License), until when the data are to be kept (Retention-Until), sizes
  manifest-sha256.txt      the SHA-256 of each file in data/
  tagmanifest-sha256.txt   the SHA-256 of each other file
  chunks/data/...tsv       for each HDF5 file: where each image lies in it (offset, bytes), and the CRC-32 of these bytes
  FORMAT.md                the format of the HDF5 files, as far as it is needed to read the images
  reader.c                 a program written from FORMAT.md: it prints the sum of each image

Are the data unchanged?
  konkordia archive --check FOLDER          names each change down to the file, the data set and the image
  bagit.py --validate FOLDER                the reference program of BagIt, from PyPI
  sha256sum --check manifest-sha256.txt     with nothing but a Unix system

How are they read?
  h5py, MATLAB, DIALS, XDS (by neggia or durin) and others read HDF5. Filters 32008 (bitshuffle), 32004 and 32015 come
  with hdf5plugin. Where none of these exists any more, FORMAT.md and reader.c are enough.

How do they come back?
  konkordia archive --restore FOLDER -o NEW_FOLDER, or copy data/.
";

/// Name and text of each.
pub fn all() -> Vec<(String, String)> {
    let format = include_str!("../../../../docs/formats/file.md");
    let reader = include_str!("../../../../docs/formats/reader.c");
    [("README.txt", README), ("FORMAT.md", format), ("reader.c", reader)].map(|(name, text)| (name.into(), text.into())).into()
}
