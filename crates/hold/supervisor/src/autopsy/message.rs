//! Why a daemon gave itself up, in its own words: a failed assertion, a heap that the C library
//! found corrupt, an exception that nobody caught, a panic.

use super::plain;

/// Lines that begin such words, by a part of them.
const BEGINNINGS: [&str; 5] = [
    "terminate called",
    "libc++abi: terminating",
    "panicked at",
    "fatal error: ",
    "AddressSanitizer",
];
/// Lines that belong to the one before.
const GOES_ON: [&str; 2] = ["  what():", "note: "];

/// The words, from what the C library kept of them (`kept`), or from the last lines of standard
/// error.
pub fn message(kept: &[u8], stderr: &[String]) -> Option<String> {
    let kept = kept.split(|byte| *byte == 0).next().unwrap_or_default();
    let kept = plain(String::from_utf8_lossy(kept).trim());
    if !kept.is_empty() {
        return Some(kept);
    }
    let begins = |line: &String| {
        let assertion = line.contains("ssertion ") && line.contains("failed");
        assertion || BEGINNINGS.iter().any(|part| line.contains(part))
    };
    let at = stderr.iter().rposition(begins)?;
    let mut words = plain(stderr.get(at)?.trim());
    // A panic of Rust says what it is about in the next line.
    let panics = words.ends_with(':');
    for (number, line) in stderr.iter().skip(at + 1).enumerate() {
        let more = GOES_ON.iter().any(|part| line.starts_with(part)) || (panics && number == 0);
        if !more {
            break;
        }
        words = format!("{words} {}", plain(line.trim()));
    }
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::message;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn what_the_c_library_kept_comes_first() {
        let stderr = lines("d: d.c:4: f: Assertion `x' failed.");
        let kept = b"d: d.c:9: g: Assertion `y' failed.\n\0rubbish";
        assert_eq!(message(kept, &stderr).as_deref(), Some("d: d.c:9: g: Assertion `y' failed."));
        assert_eq!(message(&[], &stderr).as_deref(), Some("d: d.c:4: f: Assertion `x' failed."));
        assert_eq!(message(b"\0\x1b", &[]), None);
        assert_eq!(message(b"a\x1b[31mb", &[]).as_deref(), Some("a [31mb"));
    }

    #[test]
    fn last_words_are_found_among_others() {
        let thrown = "mounting\nterminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc\nbye";
        let found = message(&[], &lines(thrown));
        let words = "terminate called after throwing an instance of 'std::bad_alloc' what():  std::bad_alloc";
        assert_eq!(found.as_deref(), Some(words));
        let panic =
            "thread 'main' panicked at src/main.rs:4:5:\nindex out of bounds\nnote: run with";
        let words = "thread 'main' panicked at src/main.rs:4:5: index out of bounds note: run with";
        assert_eq!(message(&[], &lines(panic)).as_deref(), Some(words));
        assert_eq!(message(&[], &lines("all is well\nreally")), None);
    }
}
