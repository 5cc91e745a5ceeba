//! The bytes of a file, such that a copy costs next to nothing: there are many copies of a disk,
//! which differ in little.

use std::sync::Arc;

use xxhash_rust::xxh3::Xxh3;

const PAGE: usize = 4096;

type Page = [u8; PAGE];

/// Bytes in pages that are shared until they are written to. Behind the end the last page is zero.
#[derive(Clone, Debug, Default)]
pub struct Pages {
    pages: Vec<Arc<Page>>,
    len: usize,
}

impl Pages {
    /// Pages with these bytes.
    pub fn new(bytes: &[u8]) -> Self {
        let mut pages = Self::default();
        pages.write(0, bytes);
        pages
    }

    /// How many bytes there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Makes it shorter, or longer with zeroes.
    pub fn resize(&mut self, len: usize) {
        if len < self.len
            && let Some(last) = self.pages.get_mut(len / PAGE)
        {
            Arc::make_mut(last)[len % PAGE..].fill(0);
        }
        self.pages.resize_with(len.div_ceil(PAGE), || Arc::new([0; PAGE]));
        self.len = len;
    }

    /// Writes bytes, and makes it longer if they need that.
    pub fn write(&mut self, mut at: usize, mut bytes: &[u8]) {
        if self.len < at + bytes.len() {
            self.resize(at + bytes.len());
        }
        while !bytes.is_empty() {
            let (piece, more) = bytes.split_at(bytes.len().min(PAGE - at % PAGE));
            let page = Arc::make_mut(&mut self.pages[at / PAGE]);
            page[at % PAGE..][..piece.len()].copy_from_slice(piece);
            at += piece.len();
            bytes = more;
        }
    }

    /// At most so many bytes from a place on: fewer only at the end.
    pub fn read(&self, at: usize, len: usize) -> Vec<u8> {
        let end = self.len.min(at.saturating_add(len));
        let mut out = Vec::with_capacity(end.saturating_sub(at));
        let mut at = at;
        while at < end {
            let piece = (PAGE - at % PAGE).min(end - at);
            out.extend_from_slice(&self.pages[at / PAGE][at % PAGE..][..piece]);
            at += piece;
        }
        out
    }

    /// All of it.
    pub fn to_vec(&self) -> Vec<u8> {
        self.read(0, self.len)
    }

    /// A hash of all of it.
    pub fn hash(&self) -> u128 {
        let mut hasher = Xxh3::new();
        self.pages.iter().for_each(|page| hasher.update(&page[..]));
        hasher.update(&self.len.to_le_bytes());
        hasher.digest128()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};

    #[test]
    fn they_are_like_a_vector() {
        let mut rng = rand_chacha::ChaCha12Rng::seed_from_u64(1);
        let mut model: Vec<u8> = vec![7; 10_000];
        let mut pages = Pages::new(&model);
        for _ in 0..500 {
            let before = (pages.clone(), model.clone());
            let at = rng.random_range(0..20_000);
            if rng.random_ratio(1, 4) {
                model.resize(at, 0);
                pages.resize(at);
            } else {
                let bytes = vec![rng.random(); rng.random_range(1..9000)];
                model.resize(model.len().max(at + bytes.len()), 0);
                model[at..at + bytes.len()].copy_from_slice(&bytes);
                pages.write(at, &bytes);
            }
            assert!(pages.to_vec() == model && pages.len() == model.len());
            assert!(pages.hash() == Pages::new(&model).hash());
            assert!(before.0.to_vec() == before.1, "a copy has changed");
            let at = rng.random_range(0..25_000);
            let there = model.get(at..).unwrap_or_default();
            assert!(pages.read(at, 5000) == there[..there.len().min(5000)]);
        }
    }
}
