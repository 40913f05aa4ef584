//! What a card is told before a run, and what its frames become: from the options, the program and the calibration.

use super::args::CardArgs;
use crate::bridge::programs::text_of;
use konkordia_acquire::convert::{Request, Setting, constants_of};
use konkordia_acquire::image_writer::{Beside, ImageFiles};
use konkordia_calibration::Loaded;
use konkordia_config::Config;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::geometry::ImageGeometry;
use konkordia_core::plan::{Arithmetic, Compression};
use konkordia_core::process::Processing;
use konkordia_fabric::bridge::{AddressTable, Program, Streams, of_geometry};
use konkordia_fabric::card::{Form, Front, Logic, packed};
use konkordia_kernels::constants::PixelConstants;
use konkordia_kernels::convert::fixed::FixedConstants;
use konkordia_sinks::hdf5::FileSpec;

/// The program where neither a program nor a configuration is named.
const DEFAULT_PROGRAM: &str = "jungfrau-1";
/// Frames in the memory of the card, and those that may be incomplete: as the logic has them.
const SLOTS: u32 = 64;
const WINDOW_FRAMES: u32 = 8;
/// Bytes of the words of a module.
const MODULE_BYTES: u64 = 2 * 512 * 1024;

/// Everything of a run that is known before a card begins.
pub struct Setup {
    /// For the layout of the memory.
    pub form: Form,
    /// Tables and registers of the logic.
    pub logic: Logic,
    /// Constants of the pixels, packed.
    pub constants: Vec<u8>,
    /// The files.
    pub files: ImageFiles,
    /// What they hold beside images.
    pub beside: Beside,
}

/// A program that has passed the compiler.
struct Compiled {
    program: Program,
    table: AddressTable,
}

impl Setup {
    /// Reads program, configuration and calibration.
    ///
    /// # Errors
    /// One of them cannot be read, they do not fit each other, or the logic cannot do that.
    pub fn new(args: &CardArgs) -> Result<Self, Failure> {
        let name = match (&args.program, &args.config) {
            (None, Some(_)) => None,
            (given, _) => Some(given.as_deref().unwrap_or(DEFAULT_PROGRAM)),
        };
        let given = name.map(compiled).transpose()?;
        let words = match (&given, &args.config) {
            (Some(given), None) => words_of(given)?,
            _ => String::new(),
        };
        let (config, loaded, file) = constants_of(&request(args)?, &words)?;
        only_what_the_logic_does(&config)?;
        let constants = fixed(&loaded)?;
        let made = made(&config)?;
        let used = match given {
            Some(given) => same_places(given, &made.table)?,
            None => made,
        };
        let front =
            Front { address: args.address, port: args.port, high_gain: loaded.high_gain == Some(true), shifts: constants.shift };
        let logic = Logic::new(&used.program, &used.table, &front).map_err(cannot)?;
        let form = Form {
            image_bytes: u32::try_from(logic.slot_bytes).map_err(|_| cannot(format!("frames of {} bytes", logic.slot_bytes)))?,
            is_unsigned: config.pixel.is_unsigned(),
            tiles: logic.tiles,
            tile_packets: logic.tile_packets,
            slots: args.slots,
            first_frame: args.first_frame,
            rows: logic.rows.len() as u32,
        };
        let constants = packed(&constants.view());
        let (files, beside) = files(args, &config.geometry, file);
        Ok(Self { form, logic, constants, files, beside })
    }
}

/// The card cannot do what is asked for.
pub fn cannot(why: String) -> Failure {
    Failure::new(Exit::Usage, "the card cannot do this", why, "change the options; docs/fpga.md says what the logic has")
}

fn request(args: &CardArgs) -> Result<Request, Failure> {
    let fixed: Setting = "processing.arithmetic=fixed".parse().map_err(cannot)?;
    Ok(Request {
        calibration: args.calibration.clone(),
        energy_kev: args.energy_kev,
        dtype: Some(args.pixel.pixel().name().to_owned()),
        config: args.config.clone(),
        set: vec![fixed],
        ..Request::default()
    })
}

fn compiled(name: &str) -> Result<Compiled, Failure> {
    let wrong = |why: String| {
        let fix = "correct these lines; docs/bridge.md lists the keys";
        Failure::new(Exit::Configuration, format!("the program {name} is not valid"), why, fix)
    };
    let text = text_of(name)?;
    let table = Program::compile_text(&text).map_err(|problems| wrong(problems.to_string()))?;
    let program = Program::from_toml(&text).map_err(|problems| wrong(problems.to_string()))?;
    Ok(Compiled { program, table })
}

/// The detector of a program, as a configuration says it.
fn words_of(given: &Compiled) -> Result<String, Failure> {
    let (bytes, tiles) = (given.table.slot_bytes(), given.table.tiles() as u64);
    let modules = bytes / MODULE_BYTES;
    if modules == 0 || !bytes.is_multiple_of(MODULE_BYTES) || !tiles.is_multiple_of(modules) {
        let why = format!("{tiles} tiles in a frame of {bytes} bytes, and a module has {MODULE_BYTES}");
        let fix = "give the configuration of the detector with --config";
        return Err(Failure::new(Exit::Configuration, "the program does not say which detector it is for", why, fix));
    }
    Ok(format!("[detector]\ntype = \"jungfrau\"\nmodules = {modules}\ninterfaces = {}\n", tiles / modules))
}

/// The program that places the pixels as the configuration says.
fn made(config: &Config) -> Result<Compiled, Failure> {
    let streams = Streams { name: "card", first_port: config.first_port, slots: SLOTS, window_frames: WINDOW_FRAMES };
    let program = of_geometry(&config.geometry, &streams).map_err(cannot)?;
    let table = program.compile().map_err(|problems| cannot(problems.to_string()))?;
    Ok(Compiled { program, table })
}

/// The given program, if it puts every packet where the image of the calibration has its pixels.
fn same_places(given: Compiled, made: &AddressTable) -> Result<Compiled, Failure> {
    let table = &given.table;
    let packets = |table: &AddressTable| (0..table.tiles()).map(|tile| table.packets(tile)).collect::<Vec<_>>();
    let why = if (table.slot_bytes(), packets(table)) == (made.slot_bytes(), packets(made)) {
        let all = (0..table.tiles()).flat_map(|tile| (0..table.packets(tile)).map(move |packet| (tile, packet)));
        let mut wrong = all.filter(|(tile, packet)| !table.segments(*tile, *packet).eq(made.segments(*tile, *packet)));
        match wrong.next() {
            None => return Ok(given),
            Some((tile, packet)) => format!("packet {packet} of tile {tile} lies elsewhere in the image of the detector"),
        }
    } else {
        let size = |table: &AddressTable| format!("{} tiles in {} bytes", table.tiles(), table.slot_bytes());
        format!("it has {}, and the detector {}; or their packets differ", size(table), size(made))
    };
    let fix = "leave the program out, and give the configuration of the detector with --config";
    Err(Failure::new(Exit::Configuration, "the program is not that of the detector of the calibration", why, fix))
}

/// Refuses a configuration that does more to a frame than the logic.
fn only_what_the_logic_does(config: &Config) -> Result<(), Failure> {
    let plain = Processing { arithmetic: Arithmetic::Fixed, ..Processing::default() };
    if config.options.processing == plain && !config.options.negative_offset_auto {
        return Ok(());
    }
    let why = "each image is made of one frame in integers, without selections, sums, offsets, tracking or common mode";
    let fix = "take these keys of [processing] out of the configuration";
    Err(Failure::new(Exit::Configuration, "the card cannot process frames like this", why, fix))
}

/// The constants in integers.
fn fixed(loaded: &Loaded) -> Result<FixedConstants, Failure> {
    match &loaded.constants {
        PixelConstants::Jungfrau(cells) if cells.sets.len() == 1 => Ok(FixedConstants::quantise(&cells.sets[0].view())),
        PixelConstants::Jungfrau(cells) => {
            let why = format!("the calibration has {} storage cells, and the logic constants of one", cells.sets.len());
            Err(Failure::new(Exit::Configuration, "the card has no storage cells", why, "give a calibration of one cell"))
        }
        _ => Err(cannot("only words of a JUNGFRAU become photons".into())),
    }
}

fn files(args: &CardArgs, geometry: &ImageGeometry, file: FileSpec) -> (ImageFiles, Beside) {
    let files = ImageFiles {
        output: args.output.clone(),
        overwrite: args.overwrite,
        shape: [geometry.rows() as usize, geometry.columns() as usize],
        pixel: args.pixel.pixel(),
        compression: Compression::BSLZ4,
        images_per_file: args.images_per_file,
        images: args.images,
        mask: Some(file.pixel_mask),
        metadata: file.metadata,
    };
    let note = ("card".to_owned(), "placed, converted and bitshuffled by a card (konkordia card)".to_owned());
    let beside = Beside { notes: vec![note], scale: file.scale, calibration_hash: file.calibration_hash, ..Beside::default() };
    (files, beside)
}
