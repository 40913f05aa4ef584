//! From a recipe to what the analysis is asked.

use konkordia_analysis::analyser::{SpotMethod, SpotTask, Tasks};
use konkordia_analysis::azimuthal::{self, Splitting};
use konkordia_analysis::geometry::{Geometry, Radial};
use konkordia_analysis::model::ModelTask;
use konkordia_analysis::regions::Shape;
use konkordia_analysis::resolution::{ICE_SETTINGS_VERSION, IceSettings};
use konkordia_analysis::sparse::Overflow;
use konkordia_analysis::{dispersion, peakfinder8, salt};
use konkordia_config::recipe::{self, AzimuthalKeys, ModelKeys, Recipe, RegionForm, RegionKeys, SpotKeys};
use serde_json::{Value, json};

/// What a recipe asks. The centre of a region that has none is the beam.
///
/// # Errors
/// A region about the beam, and no geometry; a model that cannot be read; in words.
pub fn of(recipe: &Recipe, geometry: Option<&Geometry>) -> Result<Tasks, String> {
    Ok(Tasks {
        spots: recipe.spots.as_ref().map(|keys| spots(keys, recipe.hit_spots_min.unwrap_or(u64::MAX))),
        azimuthal: recipe.azimuthal.as_ref().map(azimuthal),
        beam_ring: recipe.azimuthal.as_ref().and_then(|keys| keys.beam_ring),
        regions: recipe.regions.iter().map(|keys| region(keys, geometry)).collect::<Result<_, String>>()?,
        level: recipe.level.map(|level| level as f32),
        keep_above: (recipe.above_pixels_max > 0).then(|| {
            let overflow = if recipe.above_none_on_overflow { Overflow::None } else { Overflow::Truncate };
            (recipe.above_pixels_max, overflow)
        }),
        of_pixels: None,
        model: recipe.model.as_ref().map(model).transpose()?,
        hit_rule: recipe.hit_rule.clone(),
        veto_rule: recipe.veto.as_ref().map(|veto| veto.rule.clone()),
    })
}

fn model(keys: &ModelKeys) -> Result<ModelTask, String> {
    let (_, sha256) = super::model::read(&keys.file)?;
    Ok(ModelTask { file: keys.file.clone(), sha256, inputs: keys.inputs.clone(), output: keys.output.clone() })
}

fn spots(keys: &SpotKeys, hit_spots_min: u64) -> SpotTask {
    let method = match keys.method {
        recipe::SpotMethodKey::Peakfinder8 => {
            let own = peakfinder8::Settings::default();
            SpotMethod::Peakfinder8(peakfinder8::Settings {
                threshold: keys.threshold.unwrap_or(own.threshold),
                snr_min: keys.snr_min.unwrap_or(own.snr_min),
                pixels_min: keys.pixels_min.unwrap_or(own.pixels_min),
                pixels_max: keys.pixels_max.unwrap_or(own.pixels_max),
                local_background_radius_px: keys.local_background_radius_px.unwrap_or(own.local_background_radius_px),
                radius_min_px: keys.radius_min_px.unwrap_or(own.radius_min_px),
                radius_max_px: keys.radius_max_px.unwrap_or(own.radius_max_px),
                pixel_max: keys.pixel_max.unwrap_or(own.pixel_max),
            })
        }
        recipe::SpotMethodKey::Dispersion => {
            let own = dispersion::Settings::default();
            SpotMethod::Dispersion(dispersion::Settings {
                half_window_px: keys.half_window_px.unwrap_or(own.half_window_px),
                sigma_background: keys.sigma_background.unwrap_or(own.sigma_background),
                sigma_strong: keys.sigma_strong.unwrap_or(own.sigma_strong),
                count_min: keys.count_min.unwrap_or(own.count_min),
                gain: keys.gain.unwrap_or(own.gain),
                global_threshold: keys.threshold.unwrap_or(own.global_threshold),
                pixels_min: keys.pixels_min.unwrap_or(own.pixels_min),
                pixels_max: keys.pixels_max.unwrap_or(own.pixels_max),
                extended: keys.extended.unwrap_or(own.extended),
                ..own
            })
        }
    };
    let d_angstrom = [keys.d_min_angstrom.unwrap_or(0.0), keys.d_max_angstrom.unwrap_or(f64::INFINITY)];
    let usual = SpotTask::new(method, keys.spots_max);
    let salt = salt::Settings {
        spots_max: keys.salt_spots_max.unwrap_or(usual.salt.spots_max),
        snr_min: keys.salt_snr_min.unwrap_or(usual.salt.snr_min),
    };
    let ice = IceSettings {
        spots_min: keys.ice_spots_min.unwrap_or(usual.ice.spots_min),
        part_min: keys.ice_part_min.unwrap_or(usual.ice.part_min),
    };
    SpotTask { d_angstrom, hit_spots_min, salt, ice, ..usual }
}

fn azimuthal(keys: &AzimuthalKeys) -> azimuthal::Settings {
    azimuthal::Settings {
        radial: match keys.axis.as_str() {
            "two_theta" => Radial::TwoTheta,
            "d" => Radial::D,
            _ => Radial::Q,
        },
        bins: keys.bins,
        range: keys.range,
        splitting: if keys.is_split { Splitting::Full } else { Splitting::None },
        azimuth_deg: keys.azimuth_deg,
        azimuth_bins: keys.azimuth_bins,
        polarization: keys.polarization,
        solid_angle: keys.solid_angle,
        variance: keys.variance,
        ..azimuthal::Settings::default()
    }
}

fn region(keys: &RegionKeys, geometry: Option<&Geometry>) -> Result<(String, Shape), String> {
    let shape = match keys.form {
        RegionForm::Box([x0_px, y0_px, x1_px, y1_px]) => Shape::Box { x0_px, y0_px, x1_px, y1_px },
        RegionForm::Round { center_px: (x, y), radii_px: (inner_px, outer_px), sector_deg } => {
            // Places on the detector begin at the corner of the first pixel, those of regions at its centre.
            let beam = geometry.and_then(Geometry::beam_center_px).map(|[x, y]| (x - 0.5, y - 0.5));
            let center = x.or(beam.map(|beam| beam.0)).zip(y.or(beam.map(|beam| beam.1)));
            let (x_px, y_px) = center.ok_or_else(|| {
                format!("region {:?} is about the beam, whose place is not known; give x_px and y_px", keys.name)
            })?;
            match sector_deg {
                Some((from_deg, width_deg)) => Shape::Sector { x_px, y_px, inner_px, outer_px, from_deg, width_deg },
                None => Shape::Ring { x_px, y_px, inner_px, outer_px },
            }
        }
    };
    Ok((keys.name.clone(), shape))
}

/// The settings as they are used, for programs.
pub fn to_json(tasks: &Tasks) -> Value {
    let spots = tasks.spots.as_ref().map(|task| {
        let [d_min, d_max] = task.d_angstrom;
        let mut value = match &task.method {
            SpotMethod::Peakfinder8(s) => json!({
                "method": "peakfinder8", "settings_version": peakfinder8::SETTINGS_VERSION, "threshold": s.threshold, "snr_min": s.snr_min,
                "pixels_min": s.pixels_min, "pixels_max": s.pixels_max, "local_background_radius_px": s.local_background_radius_px,
                "radius_min_px": s.radius_min_px, "radius_max_px": s.radius_max_px.is_finite().then_some(s.radius_max_px),
                "pixel_max": s.pixel_max.is_finite().then_some(s.pixel_max),
            }),
            SpotMethod::Dispersion(s) => json!({
                "method": "dispersion", "settings_version": dispersion::SETTINGS_VERSION, "half_window_px": s.half_window_px,
                "sigma_background": s.sigma_background, "sigma_strong": s.sigma_strong, "count_min": s.count_min, "gain": s.gain,
                "threshold": s.global_threshold, "pixels_min": s.pixels_min, "pixels_max": s.pixels_max, "extended": s.extended,
            }),
        };
        value["spots_max"] = json!(task.spots_max);
        value["d_min_angstrom"] = json!(d_min);
        value["d_max_angstrom"] = json!(d_max.is_finite().then_some(d_max));
        value["hit_spots_min"] = json!(task.hit_spots_min);
        let salt = json!({ "settings_version": salt::SETTINGS_VERSION, "spots_max": task.salt.spots_max, "snr_min": task.salt.snr_min });
        let ice =
            json!({ "settings_version": ICE_SETTINGS_VERSION, "spots_min": task.ice.spots_min, "part_min": task.ice.part_min });
        (value["salt"], value["ice"]) = (salt, ice);
        value
    });
    let keep_above = tasks.keep_above.map(|(pixels_max, overflow)| {
        json!({ "pixels_max": pixels_max, "on_overflow": if overflow == Overflow::None { "none" } else { "truncate" } })
    });
    let model = tasks.model.as_ref().map(|ModelTask { file, sha256, inputs, output }| {
        json!({ "file": file, "sha256": sha256, "inputs": inputs, "output": output })
    });
    json!({ "spots": spots, "model": model, "hit_rule": tasks.hit_rule, "veto_rule": tasks.veto_rule, "level": tasks.level, "above_pixels": keep_above, "regions": tasks.regions.iter().map(|(name, _)| name).collect::<Vec<_>>() })
}
