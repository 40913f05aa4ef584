//! Where the detector of a file of another program lies, by NXmx: the directions of the pixels of its modules, and the
//! chains of transformations (NXtransformations) on which these depend, up to ".".
//!
//! A transformation takes a point p to R p + offset (rotation about `vector`) or to p + value x `vector` + offset
//! (translation). The position of a module is that of the outer corner of its first pixel, as dxtbx and
//! [`super::Writer`] take it.

use hdf5::{Dataset, File};
use konkordia_core::experiment::turned;

use super::bounded::ReadAll;
use super::nexus::{read_attribute, read_number};

type Vector = [f64; 3];

/// Most transformations of a chain; a longer one is a circle.
const CHAIN_MAX: usize = 64;
/// Most values of a transformation that are read: one for each image.
const VALUES_MAX: usize = 1 << 24;
/// Modules of one plane differ by less from it, metres.
const SAME_PLANE_M: f64 = 1e-6;

/// A flat detector in the McStas frame (z along the beam, y up, the sample at 0).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DetectorPlace {
    /// Outer corner of the first pixel, metres.
    pub origin_m: Vector,
    /// From one column to the next, metres.
    pub fast_m: Vector,
    /// From one row to the next, metres.
    pub slow_m: Vector,
    /// A transformation differs between images; the place is that of the first one.
    pub moves: bool,
}

/// Reads the place of the detector at this path.
///
/// # Errors
/// There are no modules, a chain is not complete, or the modules are not in one plane; in words.
pub(super) fn read(file: &File, detector: &str) -> Result<DetectorPlace, String> {
    let group = file.group(detector).map_err(|_| format!("it has no {detector}"))?;
    let names = group.member_names().unwrap_or_default();
    let is_module = |name: &String| {
        let module = group.group(name).ok();
        module.is_some_and(|module| read_attribute(&module, "NX_class").as_deref() == Some("NXdetector_module"))
    };
    let modules = names.iter().filter(|name| is_module(name));
    let places: Vec<_> =
        modules.map(|name| of_module(file, detector, &format!("{detector}/{name}"))).collect::<Result<_, _>>()?;
    let first = *places.first().ok_or("it has no NXdetector_module")?;
    let difference = |place: &DetectorPlace| {
        let pairs = [(place.origin_m, first.origin_m), (place.fast_m, first.fast_m), (place.slow_m, first.slow_m)];
        // Differences of directions grow over thousands of pixels.
        pairs.iter().zip([1.0, 4096.0, 4096.0]).map(|((a, b), by)| by * distance(*a, *b)).fold(0.0, f64::max)
    };
    if places.iter().any(|place| difference(place) > SAME_PLANE_M) {
        return Err(format!("its {} modules do not lie in one plane without gaps", places.len()));
    }
    Ok(DetectorPlace { moves: places.iter().any(|place| place.moves), ..first })
}

fn distance(a: Vector, b: Vector) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum::<f64>().sqrt()
}

/// The place that the whole image has by one of its modules.
fn of_module(file: &File, detector: &str, module: &str) -> Result<DetectorPlace, String> {
    let mut moves = false;
    let mut direction = |name: &str, size: &str| {
        let path = format!("{module}/{name}");
        let axis = Transformation::read(file, &path)?;
        let size_m = Some(axis.value).filter(|size| *size > 0.0).or_else(|| read_number(file, &format!("{detector}/{size}")));
        let size_m = size_m.filter(|size| *size > 0.0).ok_or_else(|| format!("{path} has no size of a pixel"))?;
        let chain = chain(file, &path)?;
        moves |= axis.moves || chain.iter().any(|step| step.moves);
        let vector = axis.unit_vector().map(|component| size_m * component);
        let turned = chain.iter().fold(vector, |vector, step| step.turn(vector));
        Ok::<_, String>((turned, chain.iter().fold(axis.offset_m, |point, step| step.apply(point))))
    };
    let (fast_m, origin_m) = direction("fast_pixel_direction", "x_pixel_size")?;
    let (slow_m, _) = direction("slow_pixel_direction", "y_pixel_size")?;
    let origin = file.dataset(&format!("{module}/data_origin")).ok().filter(|set| set.size() <= 3);
    let origin = origin.and_then(|set| set.read_all::<f64>().ok()).unwrap_or_default();
    // Slow before fast.
    let [row, column] = origin.last_chunk().copied().unwrap_or([0.0; 2]);
    let origin_m = std::array::from_fn(|n| origin_m[n] - row * slow_m[n] - column * fast_m[n]);
    Ok(DetectorPlace { origin_m, fast_m, slow_m, moves })
}

/// The transformations on which the one at `path` depends, the next one first.
fn chain(file: &File, path: &str) -> Result<Vec<Transformation>, String> {
    let mut steps: Vec<Transformation> = Vec::new();
    let mut at = path.to_owned();
    while steps.len() < CHAIN_MAX {
        let set = file.dataset(&at).map_err(|_| format!("{at} is not there"))?;
        let next = read_attribute(&set, "depends_on").ok_or_else(|| format!("{at} does not say on what it depends"))?;
        let next = next.trim();
        if next == "." {
            return Ok(steps);
        }
        let group = at.rsplit_once('/').map_or("", |(group, _)| group);
        at = if next.starts_with('/') { next.to_owned() } else { format!("{group}/{}", next.trim_start_matches("./")) };
        steps.push(Transformation::read(file, &at)?);
    }
    Err(format!("the chain of transformations of {path} does not end"))
}

/// One NXtransformations axis.
struct Transformation {
    is_rotation: bool,
    /// Radians or metres.
    value: f64,
    vector: Vector,
    offset_m: Vector,
    moves: bool,
}

impl Transformation {
    fn read(file: &File, path: &str) -> Result<Self, String> {
        let set = file.dataset(path).map_err(|_| format!("{path} is not there"))?;
        let is_rotation = match read_attribute(&set, "transformation_type").as_deref() {
            Some("rotation") => true,
            Some("translation") => false,
            other => return Err(format!("{path} is neither a rotation nor a translation ({})", other.unwrap_or("no type"))),
        };
        let values = Some(&set).filter(|set| set.size() <= VALUES_MAX).and_then(|set| set.read_all::<f64>().ok());
        let values = values.filter(|values| values.iter().all(|value| value.is_finite())).unwrap_or_default();
        let first = *values.first().ok_or_else(|| format!("{path} has no value"))?;
        let units = read_attribute(&set, "units");
        let factor = if is_rotation { radians(units.as_deref()) } else { metres(units.as_deref()) };
        let factor =
            factor.ok_or_else(|| format!("{path} has no unit that is known ({})", units.as_deref().unwrap_or("none")))?;
        let vector = numbers(&set, "vector").filter(|vector| distance(*vector, [0.0; 3]) > 0.0);
        let vector = vector.ok_or_else(|| format!("{path} has no vector"))?;
        let offset = numbers(&set, "offset").unwrap_or_default();
        let of_translation = units.filter(|_| !is_rotation);
        let per_offset = metres(read_attribute(&set, "offset_units").or(of_translation).as_deref());
        let per_offset = per_offset.or_else(|| (offset == [0.0; 3]).then_some(1.0));
        let per_offset = per_offset.ok_or_else(|| format!("{path} has an offset without a unit that is known"))?;
        let offset_m = offset.map(|component| component * per_offset);
        let moves = values.iter().any(|value| *value != first);
        Ok(Self { is_rotation, value: first * factor, vector, offset_m, moves })
    }

    fn unit_vector(&self) -> Vector {
        let length = distance(self.vector, [0.0; 3]);
        self.vector.map(|component| component / length)
    }

    /// A direction after it.
    fn turn(&self, v: Vector) -> Vector {
        if self.is_rotation { turned(v, self.unit_vector(), self.value) } else { v }
    }

    /// A point after it.
    fn apply(&self, point: Vector) -> Vector {
        let turned = self.turn(point);
        let by = if self.is_rotation { 0.0 } else { self.value };
        std::array::from_fn(|n| turned[n] + by * self.vector[n] + self.offset_m[n])
    }
}

fn numbers(set: &Dataset, name: &str) -> Option<Vector> {
    let numbers = set.attr(name).ok().filter(|attribute| attribute.size() == 3)?.read_all::<f64>().ok()?;
    <Vector>::try_from(numbers).ok().filter(|vector| vector.iter().all(|component| component.is_finite()))
}

fn metres(units: Option<&str>) -> Option<f64> {
    Some(match units? {
        "m" | "metre" | "meter" | "metres" | "meters" => 1.0,
        "cm" => 1e-2,
        "mm" | "millimetre" | "millimeter" => 1e-3,
        "um" | "µm" | "micron" | "microns" => 1e-6,
        _ => return None,
    })
}

fn radians(units: Option<&str>) -> Option<f64> {
    Some(match units? {
        "deg" | "degree" | "degrees" => std::f64::consts::PI / 180.0,
        "rad" | "radian" | "radians" => 1.0,
        "mrad" => 1e-3,
        _ => return None,
    })
}
