//! What the service tells of itself: one line for each thing that happened, on standard error.

use std::io::IsTerminal as _;

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::config::{Log, LogFormat, LogLevel};

/// Starts it as configured; a second call changes nothing.
pub fn start(config: &Log) {
    let level = match config.level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let json = match config.format {
        LogFormat::Auto => !std::io::stderr().is_terminal(),
        LogFormat::Text => false,
        LogFormat::Json => true,
    };
    // Of the libraries only what is wrong: the start-up line is ours.
    let filter = Targets::new().with_default(level.min(LevelFilter::WARN)).with_target("billingd", level);
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_target(false);
    let started = if json {
        let lines = lines.json().flatten_event(true).with_current_span(false).with_span_list(false);
        tracing_subscriber::registry().with(lines.with_filter(filter)).try_init()
    } else {
        let lines = lines.with_ansi(std::io::stderr().is_terminal());
        tracing_subscriber::registry().with(lines.with_filter(filter)).try_init()
    };
    // Only a second start in one process could find a log already there, and would use that.
    drop(started);
}
