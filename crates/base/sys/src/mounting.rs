//! Who may mount, and whom a mount may be shown to.

use rustix::thread::{CapabilitySet, capabilities};
use std::fs;

/// What root has allowed ordinary users (fuse.conf(5)).
const CONFIGURATION: &str = "/etc/fuse.conf";

/// Whether this process may mount by itself.
pub fn may_mount() -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN))
}

/// Whether ordinary users may mount with `allow_other`: /etc/fuse.conf says so.
pub fn users_may_let_others_in() -> bool {
    says_so(&fs::read_to_string(CONFIGURATION).unwrap_or_default())
}

fn says_so(text: &str) -> bool {
    text.lines().any(|line| line.trim() == "user_allow_other")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_is_read_as_fusermount_does() {
        assert!(says_so("# x\nuser_allow_other\n"));
        assert!(!says_so("#user_allow_other\nmount_max = 5\n"));
    }
}
