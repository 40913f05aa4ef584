//! What the service does from time to time. Files may change while it runs: tokens are removed, certificates renewed. A
//! file with a mistake changes nothing and is reported. Pixels for which nobody asks any more are freed.

use super::state::Shared;
use crate::security::tls;
use crate::security::tokens::Tokens;
use axum_server::tls_rustls::RustlsConfig;
use konkordia_acquire::handle::Severity;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// How often the files are checked.
const EVERY: Duration = Duration::from_secs(2);
/// Unpacked pixels for which nobody has asked for so long are freed.
const PIXELS_KEPT: Duration = Duration::from_secs(3);

/// What was made of a calibration and nobody has asked for since so long is freed.
const CALIBRATION_KEPT: Duration = Duration::from_secs(60);

/// When a file was last changed, and its length; `None` if it is not there.
type Seen = Option<(SystemTime, u64)>;

/// Checks the files, and frees pixels, until the service ends.
pub async fn run(shared: Arc<Shared>, tls: Option<RustlsConfig>) {
    let mut stopping = shared.stopping.subscribe();
    let settings = shared.settings.clone();
    let mut tokens_seen = settings.tokens.as_deref().map(seen);
    let tls_now = || settings.tls.as_ref().map(|files| (seen(&files.certificate), seen(&files.key)));
    let mut tls_seen = tls_now();
    loop {
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            _ = stopping.changed() => return,
        }
        for detector in &shared.fleet.detectors {
            detector.images().forget_pixels(PIXELS_KEPT);
            if let Some(calibration) = detector.calibration() {
                calibration.forget(CALIBRATION_KEPT);
            }
        }
        let tokens_now = settings.tokens.as_deref().map(seen);
        if tokens_now != tokens_seen {
            tokens_seen = tokens_now;
            reload_tokens(&shared);
        }
        let now = tls_now();
        if now != tls_seen {
            tls_seen = now;
            reload_tls(&shared, tls.as_ref());
        }
    }
}

fn seen(path: &Path) -> Seen {
    let found = std::fs::metadata(path).ok()?;
    Some((found.modified().ok()?, found.len()))
}

/// Reads the tokens again.
pub fn reload_tokens(shared: &Shared) {
    let (Some(path), Some(tokens)) = (&shared.settings.tokens, &shared.tokens) else { return };
    match Tokens::load(path) {
        Ok(new) => {
            shared.report(
                Severity::Info,
                format!("the tokens in {} were read again: {} of them", path.display(), new.entries().len()),
            );
            tokens.store(Arc::new(new));
        }
        Err(failure) => shared.warn(format!("{}: {}; the old tokens stay valid", failure.what, failure.why)),
    }
}

fn reload_tls(shared: &Shared, config: Option<&RustlsConfig>) {
    let (Some(files), Some(config)) = (&shared.settings.tls, config) else { return };
    match tls::load(files) {
        Ok(new) => config.reload_from_config(new),
        Err(failure) => shared.warn(format!("{}: {}; the old certificate stays in use", failure.what, failure.why)),
    }
}
