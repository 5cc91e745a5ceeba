//! `belay status`.

use super::mounts;
use crate::cli::Status as Options;
use crate::messages::{Out, say};
use anyhow::{Result, bail};
use belay_supervisor::status::SCHEMA_VERSION;
use serde_json::json;
use std::io::Write;

/// The exit status if the state directory that was named is not there.
const NO_STATE: i32 = 3;

/// Runs it.
pub fn run(options: &Options) -> Result<i32> {
    match show(options) {
        Err(why) if options.state.is_missing() => {
            say(&format!("belay: error: {why:#}\n"));
            Ok(NO_STATE)
        }
        done => done,
    }
}

fn show(options: &Options) -> Result<i32> {
    let mut out = Out;
    if let Some(path) = &options.mount {
        let (_, status) = mounts::one(&options.state, path)?;
        if options.json {
            writeln!(out, "{}", serde_json::to_string_pretty(&status)?)?;
        } else {
            write!(out, "{}", status.render())?;
        }
        return Ok(0);
    }
    let (all, more) = mounts::all(&options.state);
    let shown = options.state.path();
    let shown = shown.display();
    if options.json {
        let all = json!({ "schema_version": SCHEMA_VERSION, "mounts": all });
        writeln!(out, "{}", serde_json::to_string_pretty(&all)?)?;
    }
    if options.state.is_missing() {
        bail!(
            "the state directory {shown} is not there: belay holds no mount by it; name the one that `belay run` has \
             (--state-dir or BELAY_STATE_DIR)"
        );
    }
    if !options.json && all.is_empty() && !more {
        writeln!(
            out,
            "belay holds no mount (state directory {shown}); start one with `belay run -- DAEMON ARGUMENTS...`"
        )?;
    } else if !options.json {
        for status in all {
            write!(out, "{}", status.render())?;
        }
    }
    Ok(i32::from(more))
}
