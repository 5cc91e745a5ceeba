//! What a symbol is called in its language, within a budget.
//!
//! A symbol may refer to its own parts again and again: a few hundred bytes of it stand for a name
//! that no memory holds. So what is written has a limit, and so has the number of parts that are
//! visited, of which some write nothing.

use cpp_demangle::{DemangleNodeType, DemangleOptions, DemangleWrite, Symbol};
use std::fmt::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Bytes of a name; reports show fewer.
const LONGEST: usize = 4096;
/// Parts that are visited.
const PARTS: u32 = 100_000;
/// Symbols that are longer stay as they are.
const SYMBOL: usize = 16 << 10;

/// The name that stands behind `symbol`, or the symbol itself; cut off where it is too long.
pub(super) fn readable(symbol: &str) -> String {
    if symbol.len() > SYMBOL {
        return symbol.to_owned();
    }
    if let Ok(name) = rustc_demangle::try_demangle(symbol) {
        let mut out = Bounded::default();
        let _ = write!(Rust(&mut out), "{name:#}");
        return out.text;
    }
    let cpp = || {
        let name = Symbol::new(symbol).ok()?;
        let mut out = Bounded::default();
        let options = DemangleOptions::new().recursion_limit(128);
        match name.structured_demangle(&mut out, &options) {
            Ok(()) => Some(out.text),
            // What there is of a name that is too long.
            Err(_) => Some(out.text).filter(|text| text.len() >= LONGEST),
        }
    };
    catch_unwind(AssertUnwindSafe(cpp)).ok().flatten().unwrap_or_else(|| symbol.to_owned())
}

/// Text that ends where it becomes too long.
#[derive(Default)]
struct Bounded {
    text: String,
    parts: u32,
}

impl Bounded {
    fn visit(&mut self) {
        self.parts += 1;
        if self.parts > PARTS {
            // There is no other way out of the walk.
            resume_unwind(Box::new("a symbol that is too large"));
        }
    }
}

impl DemangleWrite for Bounded {
    fn push_demangle_node(&mut self, _: DemangleNodeType) {
        self.visit();
    }

    fn write_string(&mut self, text: &str) -> fmt::Result {
        self.visit();
        let room = LONGEST.saturating_sub(self.text.len());
        if text.len() <= room {
            self.text.push_str(text);
            return Ok(());
        }
        self.text.extend(text.chars().take_while(char::is_ascii).take(room));
        self.text.extend(std::iter::repeat_n('.', LONGEST.saturating_sub(self.text.len())));
        Err(fmt::Error)
    }
}

/// The same for Rust's names.
struct Rust<'a>(&'a mut Bounded);

impl fmt::Write for Rust<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write_string(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::borrow::Cow;

    #[test]
    fn names_are_readable() {
        for symbol in
            ["_ZN3foo3barEi", "_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE", "main", "_Z"]
        {
            let usual = addr2line::demangle_auto(Cow::Borrowed(symbol), None);
            assert_eq!(readable(symbol), usual);
        }
        assert_eq!(readable("_ZN3foo3barEi"), "foo::bar(int)");
    }

    /// A function whose parameters are pairs of the one before, `count` times doubled.
    fn doubling(first: &str, count: u32) -> String {
        let mut symbol = format!("_Z1fSt4pairI{first}{first}E");
        for n in 0..count {
            let id = char::from_digit(n, 36).expect("a digit").to_ascii_uppercase();
            symbol += &format!("S_IS{id}_S{id}_E");
        }
        symbol
    }

    #[test]
    fn a_name_that_no_memory_holds_is_cut_off() {
        let usual = addr2line::demangle_auto(Cow::Owned(doubling("i", 16)), None);
        assert!(usual.len() > 1 << 20, "this symbol does not grow: {}", usual.len());
        let symbol = doubling("i", 24);
        assert!(symbol.len() < 298, "{}", symbol.len());
        let name = readable(&symbol);
        assert!(name.starts_with("f(std::pair<int, int>, std::pair<std::pair<int, int>"), "{name}");
        assert_eq!(name.len(), LONGEST);
        // Of nothing, which is as many parts.
        assert!(readable(&doubling("J E", 30)).len() <= LONGEST);
    }
}
