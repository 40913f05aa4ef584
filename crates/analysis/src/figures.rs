//! The results of an image as the numbers that travel with it: into files, streams, HTTP and rules. Their names and
//! types follow from what is asked, so every image of a run has the same ones.

use crate::analyser::{Results, Tasks};
use crate::rule::Rule;
use konkordia_core::results::analysis as kinds;
use konkordia_core::results::{self, ANALYSIS_NUMBERS_MAX, ResultKind};

/// Which numbers there are. Their order is that of [`Self::kinds`]; floats are given by their bits.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    kinds: Vec<ResultKind>,
    /// How many of them are decisions, behind the first.
    decisions: usize,
    /// Pixels above the level that have a place among them; `None`: they have none.
    above_max: Option<usize>,
    has_model: bool,
}

impl Figures {
    /// Those of what is asked of images, with or without a geometry. The first says whether an image was analysed.
    ///
    /// # Errors
    /// There are too many of them; in words.
    pub fn of(tasks: &Tasks, has_geometry: bool) -> Result<Self, String> {
        let mut list = vec![kinds::IS_ANALYSED];
        let spots = tasks.spots.as_ref().filter(|task| has_geometry || !task.method.needs_geometry());
        // The decisions come first: what is known of every image stands at its beginning.
        list.extend((spots.is_some() || tasks.hit_rule.is_some()).then_some(kinds::IS_HIT));
        list.extend(tasks.veto_rule.is_some().then_some(kinds::IS_REJECTED));
        let decisions = list.len() - 1;
        if let Some(task) = spots {
            list.extend([kinds::SPOTS, kinds::SPOTS_ON_ICE, kinds::RESOLUTION, kinds::IS_SALT, kinds::IS_ICE]);
            list.extend([kinds::BACKGROUND, kinds::STORED_SPOTS]);
            let length = task.spots_max;
            let lists = [kinds::SPOT_X, kinds::SPOT_Y, kinds::SPOT_INTENSITY];
            list.extend(lists.map(|kind| ResultKind { length, ..kind }).into_iter().filter(|_| length > 0));
        }
        if let Some(settings) = tasks.azimuthal.as_ref().filter(|_| has_geometry) {
            let length = settings.bins.saturating_mul(settings.azimuth_bins);
            let is_cake = settings.azimuth_bins > 1;
            let [intensity, sigma] =
                if is_cake { [kinds::CAKE, kinds::CAKE_SIGMA] } else { [kinds::PROFILE, kinds::PROFILE_SIGMA] };
            list.push(ResultKind { length, ..intensity });
            list.extend(settings.variance.then_some(ResultKind { length, ..sigma }));
            list.extend(tasks.beam_ring.iter().flat_map(|_| [kinds::BEAM_SHIFT_X, kinds::BEAM_SHIFT_Y]));
        }
        if !tasks.regions.is_empty() {
            let of_regions = [kinds::REGION_PIXELS, kinds::REGION_SUM, kinds::REGION_MAX, kinds::REGION_X, kinds::REGION_Y];
            list.extend(of_regions.map(|kind| ResultKind { length: tasks.regions.len(), ..kind }));
        }
        if tasks.level.is_some() {
            list.push(kinds::PIXELS_ABOVE);
        }
        let above_max = tasks.keep_above.filter(|_| tasks.level.is_some()).map(|(length, _)| length);
        if let Some(length) = above_max {
            let lists = [kinds::ABOVE_INDEX, kinds::ABOVE_VALUE].map(|kind| ResultKind { length, ..kind });
            list.extend([kinds::STORED_ABOVE].into_iter().chain(lists));
        }
        list.extend(tasks.of_pixels.into_iter().flatten());
        list.extend(tasks.model.iter().map(|_| kinds::MODEL_SCORE));
        let figures = Self { kinds: list, decisions, above_max, has_model: tasks.model.is_some() };
        let numbers = figures.numbers() - tasks.of_pixels.map_or(0, |kinds| kinds.len());
        if numbers > ANALYSIS_NUMBERS_MAX {
            return Err(format!(
                "{numbers} numbers for each image (three for each spot of spots_max, one or two for each bin of the profile or \
                 cake, two for each of above.pixels_max); at most {ANALYSIS_NUMBERS_MAX} are possible"
            ));
        }
        Ok(figures)
    }

    /// What each of them is, in their order.
    pub fn kinds(&self) -> &[ResultKind] {
        &self.kinds
    }

    /// How many numbers there are together.
    pub fn numbers(&self) -> usize {
        results::numbers(&self.kinds)
    }

    /// Writes the results of an image; entries of lists that are not used are 0. Whether the image is a hit is that of
    /// its spots, and it is not rejected: [`Decisions`] say otherwise. It has no score ([`crate::model`]).
    ///
    /// # Panics
    /// If the results are those of another analyser, or `bits` has another length than [`Self::numbers`].
    pub fn fill(&self, results: &Results, bits: &mut [u64]) {
        let mut rest = bits;
        let mut put = |values: &mut dyn Iterator<Item = u64>, length: usize| {
            let (own, after) = std::mem::take(&mut rest).split_at_mut(length);
            own.iter_mut().for_each(|number| *number = values.next().unwrap_or(0));
            rest = after;
        };
        let one = std::iter::once::<u64>;
        put(&mut one(1), 1);
        let is_hit = results.spots.as_ref().is_some_and(|spots| spots.is_hit);
        for kind in &self.kinds[1..=self.decisions] {
            put(&mut one(u64::from(is_hit && kind.name == kinds::IS_HIT.name)), 1);
        }
        if let Some(spots) = &results.spots {
            let list = &spots.list.spots;
            let resolution = spots.resolution_angstrom.unwrap_or(f64::NAN).to_bits();
            let background = spots.background.unwrap_or(f64::NAN).to_bits();
            let [salt, ice] = [spots.shows_salt, spots.shows_ice].map(u64::from);
            for number in [spots.list.found, spots.on_ice, resolution, salt, ice, background, list.len() as u64] {
                put(&mut one(number), 1);
            }
            let length = spots.list.spots_max();
            put(&mut list.iter().map(|spot| spot.x_px.to_bits()), length);
            put(&mut list.iter().map(|spot| spot.y_px.to_bits()), length);
            put(&mut list.iter().map(|spot| spot.intensity.to_bits()), length);
        }
        if let Some(profile) = &results.profile {
            put(&mut profile.intensity.iter().map(|value| value.to_bits()), profile.intensity.len());
            put(&mut profile.sigma.iter().map(|value| value.to_bits()), profile.sigma.len());
        }
        for number in results.beam_shift_px.into_iter().flatten() {
            put(&mut one(number.to_bits()), 1);
        }
        if !results.regions.is_empty() {
            let (regions, length) = (&results.regions, results.regions.len());
            let number = |value: Option<f64>| value.unwrap_or(f64::NAN).to_bits();
            put(&mut regions.iter().map(|values| values.pixels), length);
            put(&mut regions.iter().map(|values| values.sum.to_bits()), length);
            put(&mut regions.iter().map(|values| number(values.maximum)), length);
            put(&mut regions.iter().map(|values| number(values.center_px.map(|center| center.0))), length);
            put(&mut regions.iter().map(|values| number(values.center_px.map(|center| center.1))), length);
        }
        if let Some(above) = results.above {
            put(&mut one(above), 1);
        }
        if let Some((length, pixels)) = self.above_max.zip(results.above_pixels.as_ref()) {
            put(&mut one(pixels.indices.len() as u64), 1);
            put(&mut pixels.indices.iter().map(|index| u64::from(*index)), length);
            put(&mut pixels.values.iter().map(|value| value.to_bits()), length);
        }
        for number in results.of_pixels.into_iter().flatten() {
            put(&mut one(number), 1);
        }
        if self.has_model {
            put(&mut one(f64::NAN.to_bits()), 1);
        }
        assert!(rest.is_empty(), "the figures and the results are those of one analyser");
    }
}

/// The rules of a recipe, over all results of an image.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decisions {
    /// Each with the place of its outcome.
    hit: Option<(Rule, usize)>,
    veto: Option<(Rule, usize)>,
    hit_at: Option<usize>,
}

/// What they say of an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// It is a hit.
    pub is_hit: bool,
    /// The veto rejects it.
    pub is_rejected: bool,
}

impl Decisions {
    /// Checks the rules of `tasks` over results of these kinds, those of [`Figures`] among them.
    ///
    /// # Errors
    /// A rule is wrong; in words.
    pub fn new(tasks: &Tasks, kinds_of_all: &[ResultKind]) -> Result<Self, String> {
        let place = |kind: ResultKind| results::place(kinds_of_all, kind.name);
        let (hit_at, rejected_at) = (place(kinds::IS_HIT), place(kinds::IS_REJECTED));
        let rule = |of: &str, text: &Option<String>, at: Option<usize>| {
            let Some((text, at)) = text.as_deref().zip(at) else { return Ok(None) };
            let rule = Rule::new(text, kinds_of_all).map_err(|why| format!("{of} rule \"{text}\": {why}"))?;
            Ok::<_, String>(Some((rule, at)))
        };
        let (hit, veto) = (rule("[hits]", &tasks.hit_rule, hit_at)?, rule("[veto]", &tasks.veto_rule, rejected_at)?);
        Ok(Self { hit, veto, hit_at })
    }

    /// Decides, and writes it into the results of the image. The rule of the veto sees whether the image is a hit.
    pub fn decide(&self, bits: &mut [u64]) -> Decision {
        let mut follow = |rule: &Option<(Rule, usize)>| {
            let (rule, at) = rule.as_ref()?;
            let holds = rule.holds(bits);
            bits[*at] = u64::from(holds);
            Some(holds)
        };
        let (is_hit, is_rejected) = (follow(&self.hit), follow(&self.veto));
        let is_hit = is_hit.unwrap_or_else(|| self.hit_at.is_some_and(|at| bits[at] == 1));
        Decision { is_hit, is_rejected: is_rejected.unwrap_or(false) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyser::{Analyser, SpotMethod, SpotTask};
    use crate::geometry::Geometry;
    use crate::plane::Plane;
    use crate::regions::Shape;
    use crate::{azimuthal, dispersion};
    use konkordia_core::results::ImageResults;
    use konkordia_kernels::Isa;
    use serde_json::json;

    const SIZE: [usize; 2] = [40, 50];

    fn tasks(spots_max: usize) -> Tasks {
        let method = SpotMethod::Dispersion(dispersion::Settings::default());
        Tasks {
            spots: Some(SpotTask { hit_spots_min: 1, ..SpotTask::new(method, spots_max) }),
            azimuthal: Some(azimuthal::Settings { bins: 3, variance: true, ..azimuthal::Settings::default() }),
            regions: vec![
                ("one".into(), Shape::Box { x0_px: 21.0, y0_px: 11.0, x1_px: 21.0, y1_px: 11.0 }),
                ("none".into(), Shape::Circle { x_px: -90.0, y_px: 0.0, radius_px: 1.0 }),
            ],
            level: Some(50.0),
            ..Tasks::default()
        }
    }

    fn analyser(tasks: &Tasks) -> Analyser {
        let geometry = Geometry::new(SIZE, [-3.0, -2.4, 100.0], [0.075, 0.0, 0.0], [0.0, 0.075, 0.0], Some(1.0)).unwrap();
        Analyser::new(tasks, Some(&geometry), &[true; SIZE[0] * SIZE[1]], SIZE).unwrap().0
    }

    #[test]
    fn every_number_stands_at_its_name() {
        let mut pixels: Vec<u16> = (0..SIZE[0] * SIZE[1]).map(|n| 3 + (n % 3 % 2) as u16).collect();
        for (x, y) in (20..23).flat_map(|x| (10..13).map(move |y| (x, y))) {
            pixels[y * SIZE[1] + x] = 100;
        }
        let mut analyser = analyser(&tasks(4));
        let figures = Figures::of(&tasks(4), true).unwrap();
        let mut results = analyser.results();
        analyser.analyse(Isa::detect(), &Plane::own(&pixels, SIZE[1]), &mut results).unwrap();
        let mut image = ImageResults::new(figures.kinds().into());
        figures.fill(&results, image.fill());
        let found = image.to_json();
        let number = |name: &str| found[name].clone();
        assert_eq!(
            (number("is_analysed"), number("spots"), number("is_hit"), number("pixels_above")),
            (1.into(), 1.into(), 1.into(), 9.into())
        );
        assert_eq!((number("nPeaks"), number("peakXPosRaw"), number("peakYPosRaw")), (1.into(), json!([21.0]), json!([11.0])));
        assert_eq!((number("peakTotalIntensity"), number("resolution_angstrom")), (json!([900.0]), json!(null)));
        assert_eq!((number("region_sum"), number("region_max")), (json!([100.0, 0.0]), json!([100.0, null])));
        assert_eq!((number("region_x_px"), number("region_pixels")), (json!([21.0, null]), json!([1, 0])));
        let profile = results.profile.unwrap();
        assert_eq!((number("profile_intensity"), number("profile_sigma")), (json!(profile.intensity), json!(profile.sigma)));
        assert_eq!(figures.numbers(), 1 + 8 + 3 * 4 + 2 * 3 + 5 * 2 + 1);
    }

    #[test]
    fn there_are_only_numbers_of_what_is_asked_and_not_too_many() {
        let figures = Figures::of(&Tasks { level: Some(1.0), ..Tasks::default() }, true).unwrap();
        assert_eq!(figures.kinds(), [kinds::IS_ANALYSED, kinds::PIXELS_ABOVE]);
        let no_lists = Figures::of(&tasks(0), true).unwrap();
        assert!(no_lists.kinds().contains(&kinds::STORED_SPOTS) && no_lists.kinds().iter().all(|kind| kind.length > 0));
        assert!(Figures::of(&tasks(6000), true).unwrap_err().contains("at most 16354"));
    }

    #[test]
    fn a_cake_is_a_list_of_its_own() {
        let azimuthal = |bins, azimuth_bins| azimuthal::Settings { bins, azimuth_bins, ..tasks(4).azimuthal.unwrap() };
        let tasks = Tasks { azimuthal: Some(azimuthal(3, 4)), spots: None, ..tasks(4) };
        let figures = Figures::of(&tasks, true).unwrap();
        let cake = figures.kinds().iter().find(|kind| kind.name == "cake_intensity").unwrap();
        assert!(cake.length == 12 && !figures.kinds().iter().any(|kind| kind.name == kinds::PROFILE.name));
        let mut analyser = analyser(&tasks);
        let mut results = analyser.results();
        let pixels: Vec<u16> = (0..SIZE[0] * SIZE[1]).map(|n| (n % 97) as u16).collect();
        analyser.analyse(Isa::detect(), &Plane::own(&pixels, SIZE[1]), &mut results).unwrap();
        let mut image = ImageResults::new(figures.kinds().into());
        figures.fill(&results, image.fill());
        let profile = results.profile.unwrap();
        assert_eq!((&image.to_json()["cake_intensity"], profile.azimuth_deg.len()), (&json!(profile.intensity), 4));
        assert_eq!(analyser.cake_azimuth_deg().unwrap(), [-135.0, -45.0, 45.0, 135.0]);
        let many = Tasks { azimuthal: Some(azimuthal(1000, 360)), ..tasks };
        assert!(Figures::of(&many, true).unwrap_err().contains("720"), "two for each of 360000 bins");
    }

    #[test]
    fn without_a_geometry_there_are_those_that_an_analyser_has_too() {
        let of_method = |method| Tasks { spots: tasks(2).spots.map(|task| SpotTask { method, ..task }), ..tasks(2) };
        for (tasks, spots) in
            [(tasks(2), true), (of_method(SpotMethod::Peakfinder8(crate::peakfinder8::Settings::default())), false)]
        {
            let figures = Figures::of(&tasks, false).unwrap();
            let (mut analyser, left_out) = Analyser::new(&tasks, None, &[true; SIZE[0] * SIZE[1]], SIZE).unwrap();
            let mut results = analyser.results();
            analyser.analyse(Isa::detect(), &Plane::own(&[0u16; SIZE[0] * SIZE[1]], SIZE[1]), &mut results).unwrap();
            // It panics if the numbers are not those of the results.
            figures.fill(&results, &mut vec![0; figures.numbers()]);
            assert_eq!((figures.kinds().contains(&kinds::SPOTS), left_out.len()), (spots, if spots { 1 } else { 2 }));
            assert!(!figures.kinds().iter().any(|kind| kind.name == kinds::PROFILE.name));
        }
    }

    #[test]
    fn rules_decide_and_say_so_in_the_results() {
        let rules = |hit: &str, veto: &str| Tasks { hit_rule: Some(hit.into()), veto_rule: Some(veto.into()), ..tasks(4) };
        let asked = rules("pixels_above > 8 && spots == 1", "is_hit == 0");
        let figures = Figures::of(&asked, true).unwrap();
        assert_eq!(figures.kinds()[..3], [kinds::IS_ANALYSED, kinds::IS_HIT, kinds::IS_REJECTED]);
        // Three results of other makers stand before them.
        let others = ResultKind { length: 3, ..kinds::REGION_SUM };
        let all: Vec<_> = [ResultKind { name: "others", ..others }].into_iter().chain(figures.kinds().iter().copied()).collect();
        let decisions = Decisions::new(&asked, &all).unwrap();
        let mut bits = vec![0; 3 + figures.numbers()];
        bits[3..].copy_from_slice(&[vec![1, 0, 0, 1, 0, 0, 1], vec![0; figures.numbers() - 8], vec![9]].concat());
        assert_eq!(decisions.decide(&mut bits), Decision { is_hit: true, is_rejected: false });
        assert_eq!(bits[3..6], [1, 1, 0]);
        *bits.last_mut().unwrap() = 8;
        assert_eq!(decisions.decide(&mut bits), Decision { is_hit: false, is_rejected: true });
        assert_eq!(bits[3..6], [1, 0, 1]);
        let wrong = Decisions::new(&rules("spots > 1", "spotz > 1"), &all).unwrap_err();
        assert!(wrong.starts_with("[veto] rule \"spotz > 1\": there is no result 'spotz'"), "{wrong}");
        // Without rules spots decide.
        let plain = Figures::of(&tasks(4), true).unwrap();
        let decisions = Decisions::new(&tasks(4), plain.kinds()).unwrap();
        let mut bits = vec![1; plain.numbers()];
        assert_eq!(decisions.decide(&mut bits), Decision { is_hit: true, is_rejected: false });
    }
}
