//! The text to be sorted: the same for the same size and seed, on every machine.

use std::io::Write;

use anyhow::{Context, Result};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// The shortest line, and how many lengths there are.
const SHORTEST: usize = 20;
const LENGTHS: usize = 64;
const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz     .";

/// Writes lines of random words until there are `bytes` of them, or a line more.
///
/// Only the generator's raw bytes are used, so that no library's idea of a uniform distribution is
/// part of the result.
///
/// # Errors
/// When writing fails.
pub fn write(out: &mut impl Write, bytes: u64, seed: u64) -> Result<()> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut line = [0; SHORTEST + LENGTHS];
    let mut written = 0;
    while written < bytes {
        let length = SHORTEST + random.next_u32() as usize % LENGTHS;
        let line = &mut line[..length];
        random.fill_bytes(line);
        line.iter_mut().for_each(|byte| *byte = ALPHABET[usize::from(*byte % 32)]);
        if let Some(last) = line.last_mut() {
            *last = b'\n';
        }
        out.write_all(line).context("writing the text")?;
        written += length as u64;
    }
    Ok(())
}

/// The text, its lines in order: what `sort` must give, found without it.
///
/// # Errors
/// None in practice: it is written to memory.
pub fn sorted(bytes: u64, seed: u64) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    write(&mut text, bytes, seed)?;
    let mut lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
    // As sort compares in the C locale: without the end of the line, which only shorter lines could
    // tell apart.
    lines.sort_unstable_by(|a, b| a[..a.len() - 1].cmp(&b[..b.len() - 1]));
    Ok(lines.concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::hash;

    #[test]
    fn the_text_is_reproducible() {
        let text = |bytes, seed| {
            let mut text = Vec::new();
            write(&mut text, bytes, seed).unwrap();
            text
        };
        let one = text(100_000, 1);
        assert!((100_000..100_100).contains(&one.len()), "{} bytes", one.len());
        assert_eq!(one, text(100_000, 1));
        assert_ne!(one, text(100_000, 2));
        assert!(text(200_000, 1).starts_with(&one));
        // Were this another text some day, results with the same seed could not be compared any
        // more.
        assert_eq!(hash(&one), "2fadb781b4f199eb80e2ba4d378cd3f2d83a26e55b90e66fe799f14dd9cc8b62");
    }

    #[test]
    fn lines_are_in_order_and_all_there() {
        let mut text = Vec::new();
        write(&mut text, 10_000, 5).unwrap();
        let sorted = sorted(10_000, 5).unwrap();
        let lines = |text: &[u8]| -> Vec<String> {
            String::from_utf8(text.to_vec()).unwrap().lines().map(str::to_owned).collect()
        };
        let mut expected = lines(&text);
        expected.sort();
        assert_eq!(lines(&sorted), expected);
    }
}
