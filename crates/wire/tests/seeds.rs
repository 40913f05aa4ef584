//! The seeds of the fuzz targets are what the builders make.
//! `KONKORDIA_WRITE_SEEDS=1 cargo test -p konkordia-wire --test seeds` writes them anew.

mod common;

use common::samples::{self, Sample};
use konkordia_wire::zmsg;
use std::path::Path;

fn check(format: &str, samples: Vec<Sample>) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(format);
    let write = std::env::var_os("KONKORDIA_WRITE_SEEDS").is_some();
    for (name, parts) in samples {
        let mut bytes = Vec::new();
        zmsg::write(&mut bytes, &parts).unwrap();
        if write {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join(name), &bytes).unwrap();
        }
        assert!(std::fs::read(folder.join(name)).ok() == Some(bytes), "seeds/{format}/{name} is not what is built");
    }
}

#[test]
fn seeds_are_what_the_builders_make() {
    check("dectris_v1", samples::dectris_v1());
    check("dectris_v2", samples::dectris_v2());
    check("stins", samples::stins());
    check("sls_json", samples::sls_json());
}
