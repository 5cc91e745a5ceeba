//! What several tests need.

use std::ffi::OsString;

/// The words of a command line without quotes.
pub fn words(line: &str) -> Vec<OsString> {
    line.split(' ').map(OsString::from).collect()
}
