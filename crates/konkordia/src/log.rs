//! The log of the service on stderr: text for people, JSON lines for programs that collect logs.

use crate::console;
use clap::ValueEnum;
use konkordia_acquire::handle::{ServiceEvent, Severity};
use konkordia_sinks::clock;
use std::fmt;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

/// What is logged: this level and everything more severe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    /// Failures
    Error,
    /// Warnings: what should be checked
    Warn,
    /// Normal events: states, runs, files
    Info,
    /// Also messages of the libraries for HTTP and TLS
    Debug,
    /// Everything
    Trace,
}

/// Format of a line of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Time, level, message, then detector, event and id
    Text,
    /// One JSON object
    Json,
}

/// Starts the log on stderr. Only the first call has an effect.
pub fn start(level: LogLevel, format: LogFormat) {
    let level = match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let lines = tracing_subscriber::fmt().with_writer(std::io::stderr).with_timer(Clock).with_max_level(level);
    let _ = match format {
        LogFormat::Text => lines.with_target(false).with_ansi(console::takes_colours()).try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
}

/// Writes the time as in the events.
struct Clock;

impl FormatTime for Clock {
    fn format_time(&self, line: &mut Writer<'_>) -> fmt::Result {
        line.write_str(&clock::now())
    }
}

/// Writes the events of the service as lines.
#[derive(Default)]
pub struct Log {
    /// Detector and message of the event before.
    last: (Option<String>, String),
}

impl Log {
    /// Writes a line; `GET /api/v1/events` has the rest of the event under the same id. A change of state is not
    /// written if the event before it had the same detector and message.
    pub fn line(&mut self, of: &ServiceEvent) {
        let ServiceEvent { id, event, message, .. } = of;
        let said = (of.detector.clone(), message.clone());
        if std::mem::replace(&mut self.last, said.clone()) == said && event == "state" {
            return;
        }
        let detector = of.detector.as_deref();
        match of.severity {
            Severity::Error => tracing::error!(detector, event, id, "{message}"),
            Severity::Warning => tracing::warn!(detector, event, id, "{message}"),
            Severity::Info | Severity::Success => tracing::info!(detector, event, id, "{message}"),
        }
    }
}
