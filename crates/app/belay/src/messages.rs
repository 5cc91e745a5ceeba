//! How belay talks on standard error: one line a message, marked as belay's, never waiting for
//! the reader.

use belay_supervisor::stderr::Polite;
use belay_supervisor::text::printable;
use std::fmt;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tracing::{Event, Level, Subscriber, field::Field, field::Visit};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Sets messages up: what `BELAY_LOG` says, else by `verbose`, the number of `-v`.
pub fn start(verbose: u8) {
    let level = ["info", "debug", "trace"].get(usize::from(verbose)).unwrap_or(&"trace");
    let filter = EnvFilter::try_from_env("BELAY_LOG").unwrap_or_else(|_| EnvFilter::new(*level));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| Polite)
        .event_format(Lines)
        .init();
}

/// Says `text` on standard error.
pub fn say(text: &str) {
    // Nobody is left to tell about a failure.
    let _ = Polite.write_all(printable(text).as_bytes());
}

/// Standard output, of which terminals obey nothing: what is written to it may have come from
/// anywhere.
#[derive(Debug)]
pub struct Out;

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let text = String::from_utf8_lossy(bytes);
        heard(io::stdout().write_all(printable(&text).as_bytes()))
    }

    fn write_fmt(&mut self, text: fmt::Arguments<'_>) -> io::Result<()> {
        self.write_all(text.to_string().as_bytes())
    }

    fn flush(&mut self) -> io::Result<()> {
        heard(io::stdout().flush())
    }
}

/// Nobody reads standard output any more.
static UNHEARD: AtomicBool = AtomicBool::new(false);

fn heard(written: io::Result<()>) -> io::Result<()> {
    written.map_err(|error| {
        if error.kind() == io::ErrorKind::BrokenPipe {
            UNHEARD.store(true, Relaxed);
        }
        // It may be the last of what was asked for, and the only one that is not done.
        io::Error::new(error.kind(), format!("cannot write to standard output: {error}"))
    })
}

/// Whether standard output is a pipe that nobody reads any more, of which nobody is to be told.
pub fn is_unheard() -> bool {
    UNHEARD.load(Relaxed)
}

struct Lines;

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut out: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mark = match *event.metadata().level() {
            Level::ERROR => "error: ",
            Level::WARN => "warning: ",
            _ => "",
        };
        let mut text = Message(String::new());
        event.record(&mut text);
        writeln!(out, "belay: {mark}{}", printable(&text.0))
    }
}

struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}
