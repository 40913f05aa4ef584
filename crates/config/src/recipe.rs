//! A recipe: what is looked for in images, in a file of its own.

use super::diagnostics::Diagnostics;
use super::read::{self, Document, Table};
use super::schema_analysis;
use super::shared_keys::resolve;
use konkordia_core::failure::Failure;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What is looked for. A key that was not given is `None`: the method has its own value for it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recipe {
    /// Bragg spots.
    pub spots: Option<SpotKeys>,
    /// The powder profile.
    pub azimuthal: Option<AzimuthalKeys>,
    /// Named regions.
    pub regions: Vec<RegionKeys>,
    /// Pixels above this level are counted, 0 to 2^24.
    pub level: Option<u32>,
    /// Most of these pixels of an image that are stored; 0: they are only counted.
    pub above_pixels_max: usize,
    /// Of an image with more of them none is stored.
    pub above_none_on_overflow: bool,
    /// Spots of a hit.
    pub hit_spots_min: Option<u64>,
    /// Rule of a hit, instead.
    pub hit_rule: Option<String>,
    /// A model that gives each image a score.
    pub model: Option<ModelKeys>,
    /// Which images are dropped.
    pub veto: Option<VetoKeys>,
}

/// The keys of `[model]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelKeys {
    /// The file.
    pub file: PathBuf,
    /// Results that it gets.
    pub inputs: Vec<String>,
    /// Which of its outputs is the score; `None`: it has only one.
    pub output: Option<String>,
    /// Longest time for a score while images are measured.
    pub answer_timeout: Duration,
}

/// The keys of `[veto]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VetoKeys {
    /// An image is rejected if this rule holds.
    pub rule: String,
    /// Rejected images are dropped; false: only what would be dropped is recorded.
    pub drops: bool,
    /// Every how many-th rejected image is kept anyway; 0 = none.
    pub keep_one_in: u64,
}

/// The key `method` of `[spots]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpotMethodKey {
    /// As CrystFEL means it.
    Peakfinder8,
    /// The threshold of DIALS.
    Dispersion,
}

/// The keys of `[spots]`.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct SpotKeys {
    pub method: SpotMethodKey,
    pub spots_max: usize,
    pub d_min_angstrom: Option<f64>,
    pub d_max_angstrom: Option<f64>,
    pub pixels_min: Option<u32>,
    pub pixels_max: Option<u32>,
    pub threshold: Option<f64>,
    pub snr_min: Option<f64>,
    pub local_background_radius_px: Option<u32>,
    pub pixel_max: Option<f64>,
    pub radius_min_px: Option<f64>,
    pub radius_max_px: Option<f64>,
    pub half_window_px: Option<[usize; 2]>,
    pub sigma_background: Option<f64>,
    pub sigma_strong: Option<f64>,
    pub count_min: Option<usize>,
    pub gain: Option<f64>,
    pub extended: Option<bool>,
    pub salt_spots_max: Option<usize>,
    pub salt_snr_min: Option<f64>,
    pub ice_spots_min: Option<u64>,
    pub ice_part_min: Option<f64>,
}

/// The keys of `[azimuthal]`.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct AzimuthalKeys {
    /// "q", "two_theta" or "d".
    pub axis: String,
    pub bins: usize,
    pub range: Option<[f64; 2]>,
    pub is_split: bool,
    pub azimuth_deg: Option<[f64; 2]>,
    pub azimuth_bins: usize,
    pub beam_ring: Option<[f64; 2]>,
    pub polarization: Option<f64>,
    pub solid_angle: bool,
    pub variance: bool,
}

/// One `[[region]]`.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct RegionKeys {
    pub name: String,
    pub form: RegionForm,
}

/// Its shape.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RegionForm {
    /// First column, first row, last column, last row.
    Box([f64; 4]),
    /// Between two radii and two angles about a point; without one, about the beam.
    Round {
        /// Column and row of the point.
        center_px: (Option<f64>, Option<f64>),
        /// Inner and outer radius.
        radii_px: (f64, f64),
        /// Where it begins and how far it reaches, degrees; `None`: all around.
        sector_deg: Option<(f64, f64)>,
    },
}

/// A commented example that is itself valid.
pub const EXAMPLE: &str = include_str!("example_recipe.toml");

/// Most regions of a recipe.
pub const REGIONS_MAX: usize = 64;

impl Recipe {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, or everything that is wrong in it.
    pub fn load(path: &Path) -> Result<Self, Failure> {
        Ok(Self::load_with_text(path)?.0)
    }

    /// Reads a file, and returns its text too.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn load_with_text(path: &Path) -> Result<(Self, String), Failure> {
        let text = read::text_of(path)?;
        Ok((Self::parse(&text, path)?, text))
    }

    /// Checks `text`. `file` names it in messages.
    ///
    /// # Errors
    /// Everything that is wrong in the text.
    pub fn parse(text: &str, file: &Path) -> Result<Self, Diagnostics> {
        let mut d = Diagnostics::new(&file.display().to_string(), text);
        let document = read::read(text, &mut d);
        for (name, table) in document.tables().filter(|(name, _)| !schema_analysis::TABLES.contains(name)) {
            let why = "a recipe says what is looked for in images; detector and files have a configuration of their own";
            d.add(table.span.clone(), format!("[{name}] does not belong in a recipe"), why, "remove the table");
        }
        let recipe = Self::read(&document, file, &mut d);
        if recipe == Self::default() && d.found.is_empty() {
            let fix = "add [spots], [azimuthal], [[region]] or [above]";
            d.add(None, "the recipe asks for nothing", "", fix);
        }
        d.finish(Some(recipe))
    }

    /// Adds regions that people have drawn; each takes the place of one with the same name.
    ///
    /// # Errors
    /// Then there would be too many.
    pub fn draw(&mut self, drawn: &[RegionKeys]) -> Result<(), String> {
        self.regions.retain(|region| drawn.iter().all(|drawn| drawn.name != region.name));
        self.regions.extend(drawn.iter().cloned());
        if self.regions.len() <= REGIONS_MAX {
            return Ok(());
        }
        Err(format!("with those of the recipe there are {} regions; at most {REGIONS_MAX} are possible", self.regions.len()))
    }

    fn read(document: &Document, file: &Path, d: &mut Diagnostics) -> Self {
        let (spots, azimuthal, above) = (document.table("spots"), document.table("azimuthal"), document.table("above"));
        let (hits, model, veto) = (document.table("hits"), document.table("model"), document.table("veto"));
        if hits.span.is_some() && spots.span.is_none() && !hits.has("rule") {
            let fix = "add [spots], or a rule to [hits]";
            d.add(hits.span.clone(), "[hits] without [spots]", "a hit is an image with spots", fix);
        }
        if hits.has("rule") && hits.has("spots_min") {
            let fix = "remove one of them; in a rule this is `spots - spots_on_ice >= 15`";
            d.add(hits.span("rule"), "hits.rule and hits.spots_min", "each says what a hit is", fix);
        }
        let regions = document.array("region");
        if let Some(one_more) = regions.get(REGIONS_MAX) {
            let what = format!("{} regions", regions.len());
            d.add(one_more.span.clone(), what, format!("at most {REGIONS_MAX} are possible"), "remove some");
        }
        let whole = |n: i64| u64::try_from(n).unwrap_or_default();
        Self {
            spots: spots.span.is_some().then(|| read_spots(spots, d)).flatten(),
            azimuthal: azimuthal.span.is_some().then(|| read_azimuthal(azimuthal, d)),
            regions: regions.iter().filter_map(|region| read_region(region, d)).collect(),
            level: above.span.is_some().then(|| read_level(above, d)).flatten(),
            above_pixels_max: above.integer("pixels_max").map_or(0, |n| n as usize),
            above_none_on_overflow: above.text("on_overflow") == Some("none"),
            hit_spots_min: spots.span.as_ref().map(|_| hits.integer("spots_min").map_or(15, whole)),
            hit_rule: hits.text("rule").map(str::to_owned),
            model: model.span.is_some().then(|| read_model(model, file, d)).flatten(),
            veto: veto.span.is_some().then(|| read_veto(veto, d)).flatten(),
        }
    }
}

/// The tables of a recipe do not belong in the configuration of a run, which names it.
pub(super) fn refuse_in_runs(document: &Document, d: &mut Diagnostics) {
    let tables = document.tables().filter(|(name, _)| schema_analysis::TABLES.contains(name));
    let regions = document.array("region").iter().map(|table| ("region", table));
    for (name, table) in tables.chain(regions).collect::<Vec<_>>() {
        let why = "a recipe is a file of its own, for runs and for `konkordia analyse`";
        let fix = "move it into a file, and name that in [analysis] recipe = \"RECIPE.toml\"";
        d.add(table.span.clone(), format!("[{name}] belongs in a recipe"), why, fix);
    }
}

fn ascending(table: &Table, d: &mut Diagnostics, name: &str, (low, high): (&str, &str)) {
    if let (Some(first), Some(second)) = (table.number(low), table.number(high))
        && first >= second
    {
        let what = format!("{name}.{low} is not below {name}.{high}");
        d.add(table.span(low), what, "nothing lies between them", "exchange or correct the numbers");
    }
}

fn read_spots(t: &Table, d: &mut Diagnostics) -> Option<SpotKeys> {
    let method = match t.text("method") {
        Some("peakfinder8") => SpotMethodKey::Peakfinder8,
        Some("dispersion") => SpotMethodKey::Dispersion,
        // What is wrong with another value was said already.
        _ if t.has("method") => return None,
        _ => {
            d.add(t.span.clone(), "[spots] has no method", "", "add method = \"peakfinder8\" or method = \"dispersion\"");
            return None;
        }
    };
    let (others, of) = match method {
        SpotMethodKey::Peakfinder8 => {
            (&["half_window_px", "sigma_background", "sigma_strong", "count_min", "gain", "extended"][..], "dispersion")
        }
        SpotMethodKey::Dispersion => {
            (&["snr_min", "local_background_radius_px", "pixel_max", "radius_min_px", "radius_max_px"][..], "peakfinder8")
        }
    };
    for key in others.iter().filter(|key| t.has(key)) {
        d.add(t.span(key), format!("spots.{key} is for method = \"{of}\""), "", "remove the line, or change the method");
    }
    ascending(t, d, "spots", ("d_min_angstrom", "d_max_angstrom"));
    ascending(t, d, "spots", ("radius_min_px", "radius_max_px"));
    let window: Vec<usize> = t.integers("half_window_px").into_iter().map(|n| n as usize).collect();
    if t.has("half_window_px") && window.len() != 2 {
        d.add(t.span("half_window_px"), "spots.half_window_px needs two numbers", "", "give [half height, half width]");
    }
    let count = |key: &str| t.integer(key).and_then(|n| u32::try_from(n).ok());
    if let (Some(least), Some(most)) = (count("pixels_min"), count("pixels_max"))
        && least > most
    {
        d.add(t.span("pixels_min"), "spots.pixels_min is above spots.pixels_max", "", "correct the numbers");
    }
    Some(SpotKeys {
        method,
        spots_max: t.integer("spots_max").map_or(2000, |n| n as usize),
        d_min_angstrom: t.number("d_min_angstrom"),
        d_max_angstrom: t.number("d_max_angstrom"),
        pixels_min: count("pixels_min"),
        pixels_max: count("pixels_max"),
        threshold: t.number("threshold"),
        snr_min: t.number("snr_min"),
        local_background_radius_px: count("local_background_radius_px"),
        pixel_max: t.number("pixel_max"),
        radius_min_px: t.number("radius_min_px"),
        radius_max_px: t.number("radius_max_px"),
        half_window_px: <[usize; 2]>::try_from(window).ok(),
        sigma_background: t.number("sigma_background"),
        sigma_strong: t.number("sigma_strong"),
        count_min: t.integer("count_min").map(|n| n as usize),
        gain: t.number("gain"),
        extended: t.flag("extended"),
        salt_spots_max: t.integer("salt_spots_max").map(|n| n as usize),
        salt_snr_min: t.number("salt_snr_min"),
        ice_spots_min: t.integer("ice_spots_min").map(|n| n as u64),
        ice_part_min: t.number("ice_part_min"),
    })
}

fn read_azimuthal(t: &Table, d: &mut Diagnostics) -> AzimuthalKeys {
    for key in ["range", "azimuth_deg", "beam_ring"] {
        if let Some([first, second]) = t.numbers::<2>(key)
            && first >= second
        {
            d.add(t.span(key), format!("azimuthal.{key} does not ascend"), "", "give the lower end first");
        }
    }
    let axis = t.text("axis").unwrap_or("q").to_owned();
    if axis == "d" && !t.has("range") {
        let why = "d grows without limit towards the beam";
        d.add(t.span("axis"), "azimuthal.axis = \"d\" without a range", why, "add range = [lowest, highest], in angstrom");
    }
    AzimuthalKeys {
        axis,
        bins: t.integer("bins").map_or(1000, |n| n as usize),
        range: t.numbers("range"),
        is_split: t.text("splitting") == Some("full"),
        azimuth_deg: t.numbers("azimuth_deg"),
        azimuth_bins: t.integer("azimuth_bins").map_or(1, |n| n as usize),
        beam_ring: t.numbers("beam_ring"),
        polarization: t.number("polarization"),
        solid_angle: t.flag("solid_angle").unwrap_or(true),
        variance: t.flag("variance").unwrap_or(false),
    }
}

fn read_level(t: &Table, d: &mut Diagnostics) -> Option<u32> {
    if !t.has("level") {
        d.add(t.span.clone(), "[above] has no level", "", "add level = ...: pixels above it are counted");
    }
    u32::try_from(t.integer("level")?).ok()
}

fn read_model(t: &Table, recipe: &Path, d: &mut Diagnostics) -> Option<ModelKeys> {
    let (file, inputs) = (t.text("file"), t.texts("inputs"));
    if file.is_none() {
        d.add(t.span.clone(), "[model] has no file", "", "add file = \"MODEL.onnx\"");
    }
    if inputs.is_empty() {
        d.add(t.span.clone(), "[model] has no inputs", "", "add inputs = [\"spots\", ...]: the results that it gets");
    }
    let limit = Duration::from_millis(t.integer("answer_timeout_ms").unwrap_or(1000) as u64);
    let output = t.text("output").map(str::to_owned);
    let file = resolve(recipe, file?);
    (!inputs.is_empty()).then_some(ModelKeys { file, inputs, output, answer_timeout: limit })
}

fn read_veto(t: &Table, d: &mut Diagnostics) -> Option<VetoKeys> {
    let Some(rule) = t.text("rule") else {
        d.add(t.span.clone(), "[veto] has no rule", "", "add rule = \"...\": an image is rejected if it holds");
        return None;
    };
    Some(VetoKeys {
        rule: rule.into(),
        drops: t.text("mode") == Some("drop"),
        keep_one_in: t.integer("keep_one_in").map_or(100, |n| u64::try_from(n).unwrap_or_default()),
    })
}

fn read_region(t: &Table, d: &mut Diagnostics) -> Option<RegionKeys> {
    let (name, shape) = (t.text("name")?.to_owned(), t.text("shape")?);
    let all = ["corners_px", "x_px", "y_px", "radius_px", "inner_radius_px", "from_deg", "width_deg"];
    let own: &[&str] = match shape {
        "box" => &all[..1],
        "circle" => &all[1..4],
        "ring" => &all[1..5],
        _ => &all[1..],
    };
    for key in all.iter().filter(|key| t.has(key) && !own.contains(key)) {
        d.add(t.span(key), format!("region {name:?}: a {shape} has no {key}"), "", "remove the line, or change the shape");
    }
    let needed = if shape == "box" { "corners_px" } else { "radius_px" };
    if !t.has(needed) {
        d.add(t.span.clone(), format!("region {name:?}: a {shape} needs {needed}"), "", format!("add {needed} = ..."));
        return None;
    }
    let form = if shape == "box" {
        RegionForm::Box(t.numbers("corners_px")?)
    } else {
        ascending(t, d, "region", ("inner_radius_px", "radius_px"));
        RegionForm::Round {
            center_px: (t.number("x_px"), t.number("y_px")),
            radii_px: (t.number("inner_radius_px").unwrap_or(0.0), t.number("radius_px")?),
            sector_deg: (shape == "sector")
                .then(|| (t.number("from_deg").unwrap_or(0.0), t.number("width_deg").unwrap_or(360.0))),
        }
    };
    Some(RegionKeys { name, form })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Result<Recipe, Vec<String>> {
        Recipe::parse(text, Path::new("r.toml")).map_err(|d| d.found.into_iter().map(|found| found.what).collect())
    }

    #[test]
    fn a_recipe_is_read() {
        let text = "[spots]\nmethod = \"dispersion\"\nhalf_window_px = [3, 2]\nd_min_angstrom = 2.0\n[hits]\nspots_min = 7\n\
                    [azimuthal]\nbins = 500\nsplitting = \"full\"\nrange = [0.5, 4]\n[above]\nlevel = 3\npixels_max = 7\non_overflow = \"none\"\n\
                    [[region]]\nname = \"a\"\nshape = \"box\"\ncorners_px = [1, 2, 3, 4]\n\
                    [[region]]\nname = \"b\"\nshape = \"sector\"\nradius_px = 9\nfrom_deg = -20\n";
        let recipe = check(text).unwrap();
        let spots = recipe.spots.unwrap();
        assert_eq!((spots.method, spots.half_window_px, spots.spots_max), (SpotMethodKey::Dispersion, Some([3, 2]), 2000));
        let azimuthal = recipe.azimuthal.unwrap();
        assert_eq!((azimuthal.bins, azimuthal.is_split, azimuthal.range), (500, true, Some([0.5, 4.0])));
        assert_eq!((recipe.level, recipe.hit_spots_min, recipe.veto), (Some(3), Some(7), None));
        assert_eq!((recipe.above_pixels_max, recipe.above_none_on_overflow, azimuthal.azimuth_bins), (7, true, 1));
        let veto = check("[above]\nlevel = 3\n[veto]\nrule = \"pixels_above < 9\"\n").unwrap().veto.unwrap();
        assert_eq!((veto.rule.as_str(), veto.drops, veto.keep_one_in), ("pixels_above < 9", false, 100));
        let veto = check("[veto]\nrule = \"a\"\nmode = \"drop\"\nkeep_one_in = 0\n[hits]\nrule = \"b\"\n").unwrap();
        assert_eq!(
            (veto.hit_rule.as_deref(), veto.veto.map(|veto| (veto.drops, veto.keep_one_in))),
            (Some("b"), Some((true, 0)))
        );
        assert_eq!(recipe.regions[0].form, RegionForm::Box([1.0, 2.0, 3.0, 4.0]));
        let sector = RegionForm::Round { center_px: (None, None), radii_px: (0.0, 9.0), sector_deg: Some((-20.0, 360.0)) };
        assert_eq!(recipe.regions[1].form, sector);
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, what) in [
            ("", "asks for nothing"),
            ("[spots]\n", "no method"),
            ("[spots]\nmethod = \"peakfinder9\"\n", "spots.method"),
            ("[spots]\nmethod = \"peakfinder8\"\ngain = 2.0\n", "spots.gain is for"),
            ("[spots]\nmethod = \"dispersion\"\nsnr_min = 2.0\n", "spots.snr_min is for"),
            ("[spots]\nmethod = \"dispersion\"\nhalf_window_px = [3]\n", "two numbers"),
            ("[spots]\nmethod = \"peakfinder8\"\nd_min_angstrom = 5\nd_max_angstrom = 4\n", "not below"),
            ("[hits]\nspots_min = 4\n", "[hits] without"),
            ("[azimuthal]\naxis = \"d\"\n", "without a range"),
            ("[azimuthal]\nrange = [4, 2]\n", "does not ascend"),
            ("[hits]\nspots_min = 3\nrule = \"spots > 2\"\n", "hits.rule and hits.spots_min"),
            ("[veto]\nmode = \"drop\"\n", "no rule"),
            ("[veto]\nrule = \"spots > 2\"\nmode = \"keep\"\n", "veto.mode"),
            ("[above]\n", "no level"),
            ("[[region]]\nname = \"a\"\nshape = \"circle\"\n", "needs radius_px"),
            ("[[region]]\nname = \"a\"\nshape = \"box\"\nradius_px = 3\ncorners_px = [1, 2, 3, 4]\n", "has no radius_px"),
            ("[detector]\nmodules = 1\n", "does not belong"),
            ("[spots]\nmethod = \"peakfinder8\"\nsnr = 4\n", "unknown key 'snr'"),
        ] {
            let found = check(text).unwrap_err();
            assert!(found.iter().any(|found| found.contains(what)), "{text}: {found:?} without {what}");
        }
        let many = "[[region]]\nname = \"a\"\nshape = \"circle\"\nradius_px = 3\n".repeat(REGIONS_MAX + 1);
        assert_eq!(check(&many).unwrap_err(), ["65 regions"]);
    }

    #[test]
    fn drawn_regions_take_the_place_of_those_of_the_same_name() {
        let region = |name: &str, x| RegionKeys { name: name.into(), form: RegionForm::Box([x; 4]) };
        let mut recipe = Recipe { regions: vec![region("a", 1.0), region("b", 2.0)], ..Recipe::default() };
        recipe.draw(&[region("c", 3.0), region("a", 4.0)]).unwrap();
        assert_eq!(recipe.regions, [region("b", 2.0), region("c", 3.0), region("a", 4.0)]);
        let many: Vec<_> = (0..REGIONS_MAX).map(|n| region(&n.to_string(), 0.0)).collect();
        assert!(recipe.draw(&many).unwrap_err().contains("67 regions"));
    }

    #[test]
    fn the_example_is_valid_and_names_every_key() {
        check(EXAMPLE).unwrap();
        for key in schema_analysis::KEYS {
            assert!(EXAMPLE.contains(&format!("{} = ", key.name)), "{} is not in the example", key.name);
        }
    }

    #[test]
    fn a_run_refuses_a_recipe() {
        let text = format!("{}\n[spots]\nmethod = \"peakfinder8\"\n", crate::EXAMPLE);
        let wrong = crate::Config::parse(&text, Path::new("run.toml")).unwrap_err();
        assert!(wrong.found.iter().any(|found| found.what == "[spots] belongs in a recipe"));
    }
}
