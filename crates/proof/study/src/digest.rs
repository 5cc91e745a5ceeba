//! Short names for bytes.

use std::fmt::Write;

use sha2::{Digest, Sha256};

/// A short name for some bytes.
#[must_use]
pub fn hash(data: &[u8]) -> String {
    hex(&Sha256::digest(data))
}

/// The first 16 hexadecimal digits of a digest.
#[must_use]
pub fn hex(digest: &[u8]) -> String {
    digest.iter().take(8).fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_and_tell_apart() {
        assert_eq!(hash(b"abc"), "ba7816bf8f01cfea");
        assert_ne!(hash(b"abd"), hash(b"abc"));
        assert_eq!(hex(&[0, 255]), "00ff");
    }
}
