//! How belay asks a daemon that keeps records of its own what it has answered to a request (policy
//! `records`).
//!
//! Such a daemon publishes what a request changes together with the number of the request and its
//! answer, in one step, and where it outlives the daemon. Belay asks it for an extended attribute
//! of the root, whose name is [`PREFIX`] and that number. The value is the answer without its
//! header. ENODATA says that there is no such record, and then nothing of the request has happened.
//!
//! The question has a number of belay's own ([`crate::Unique::is_own`]), by which a daemon knows it
//! from an application's.
//!
//! The daemon in its turn may ask belay, by a notification with the code [`IS_KNOWN`], whether the
//! kernel knows a node: a FORGET that an earlier life had read comes to nobody again.

/// The code of a notification that asks whether the kernel knows the node whose number is its body.
/// It fails with ENOENT if not. Kernels have no such code, and do not get to see it.
pub const IS_KNOWN: i32 = i32::MAX;

/// The name up to the number.
pub const PREFIX: &str = "trusted.belay.reply.";

/// The name of the attribute with the record of a request.
#[must_use]
pub fn name_of(unique: u64) -> String {
    format!("{PREFIX}{unique}")
}

/// Which request is asked for by that name; `None` if it is another attribute.
#[must_use]
pub fn asked_by(name: &[u8]) -> Option<u64> {
    std::str::from_utf8(name).ok()?.strip_prefix(PREFIX)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_is_found_in_the_name() {
        for unique in [2, u64::MAX] {
            assert_eq!(asked_by(name_of(unique).as_bytes()), Some(unique));
        }
        for name in ["user.a", PREFIX, "trusted.belay.reply.x", "trusted.belay.reply.-1"] {
            assert_eq!(asked_by(name.as_bytes()), None);
        }
        assert_eq!(asked_by(b"\xff"), None);
    }
}
