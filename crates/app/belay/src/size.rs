//! Sizes on the command line.

/// Bytes of a size such as `512M`, `1.5GiB` or `4096`: units are powers of 1024.
///
/// # Errors
/// What is wrong, for people.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text} is not a size; write a number with K, M, G or T, such as 512M");
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(split).ok_or_else(wrong)?;
    let number: f64 = number.trim().parse().map_err(|_| wrong())?;
    let shift = match unit.to_ascii_lowercase().trim_end_matches("ib").trim_end_matches('b') {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return Err(wrong()),
    };
    let bytes = number * (1_u64 << shift) as f64;
    if !bytes.is_finite() || bytes < 1.0 || bytes > (1_u64 << 60) as f64 {
        return Err(wrong());
    }
    Ok(bytes as u64)
}

/// The same, or 0 for what is not to be at all.
///
/// # Errors
/// What is wrong, for people.
pub fn parse_size_or_zero(text: &str) -> Result<u64, String> {
    if text.trim() == "0" { Ok(0) } else { parse_size(text) }
}

#[cfg(test)]
mod tests {
    use super::{parse_size, parse_size_or_zero};

    #[test]
    fn zero_is_a_size_where_it_means_never() {
        assert_eq!(parse_size_or_zero("0"), Ok(0));
        assert_eq!(parse_size_or_zero("8M"), Ok(8 << 20));
        assert!(parse_size_or_zero("0.1").is_err() && parse_size_or_zero("").is_err());
    }

    #[test]
    fn sizes_are_understood() {
        assert_eq!(parse_size("4096"), Ok(4096));
        assert_eq!(parse_size("512M"), Ok(512 << 20));
        assert_eq!(parse_size("1.5GiB"), Ok(3 << 29));
        assert_eq!(parse_size("2kb"), Ok(2048));
        for wrong in ["", "M", "-1", "0", "1X", "1e300", "nan", "5 5"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
    }
}
