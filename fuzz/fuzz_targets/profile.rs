//! Profiles of daemons, which users write.
#![no_main]

use belay::profile::Profile;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(text) = std::str::from_utf8(data)
        && let Ok(profile) = Profile::parse(text)
    {
        let _ = (profile.policy(), profile.is_for("/usr/bin/bindfs".as_ref()));
    }
});
