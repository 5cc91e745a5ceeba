//! What an effectful call is, as far as the journal compares and probes it.

use crate::argument::Text;
use belay_effects::Kind;
use belay_effects::log::digest;
use libc::c_int;

/// What a call is about, as far as a probe needs it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum About<'c> {
    /// A name below a directory.
    Name(c_int, Text<'c>),
    /// Two names.
    Names((c_int, Text<'c>), (c_int, Text<'c>)),
    /// Two names, the last link of the first of which is followed.
    Link((c_int, Text<'c>), (c_int, Text<'c>)),
    /// An open file.
    File(c_int),
    /// An offset in an open file.
    Offset(c_int, u64),
    /// An extended attribute of a name; whether its last link is followed.
    NameAttribute(Text<'c>, bool, Text<'c>),
    /// An extended attribute of an open file.
    FileAttribute(c_int, Text<'c>),
}

/// An effectful call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'c> {
    pub(crate) kind: Kind,
    /// Its arguments, but for numbers of descriptors, which differ between lives.
    pub(crate) digest: u64,
    pub(crate) about: About<'c>,
    /// How much it is to write.
    pub(crate) length: u64,
}

/// A number for the arguments of a call: strings, and numbers.
pub(crate) fn arguments(kind: Kind, strings: &[&[u8]], numbers: &[u64]) -> u64 {
    let mut state = kind as u64;
    for string in strings {
        state = digest(state, without_number(string));
    }
    let mut bytes = [0; 48];
    for (number, place) in numbers.iter().zip(bytes.chunks_exact_mut(8)) {
        place.copy_from_slice(&number.to_ne_bytes());
    }
    digest(state, &bytes)
}

/// What is behind the number, if a string is a path by a descriptor.
fn without_number(path: &[u8]) -> &[u8] {
    const BY_NUMBER: [&[u8]; 2] = [b"/proc/self/fd/", b"/dev/fd/"];
    let rest = BY_NUMBER.iter().find_map(|folder| path.strip_prefix(*folder));
    let digits = |rest: &[u8]| rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    rest.and_then(|rest| rest.get(digits(rest)..)).unwrap_or(path)
}
