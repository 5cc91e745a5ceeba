//! Figures as text, and whether they meet an aim.

/// The value with so many digits, or a dash.
pub fn or_dash(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "–".to_owned(), |v| format!("{v:.digits$}"))
}

/// Whether `value` keeps to `limit`.
pub fn verdict(value: Option<f64>, limit: f64) -> &'static str {
    match value {
        None => "not measured",
        Some(value) if value <= limit => "met",
        Some(_) => "not met",
    }
}

/// The same of an estimate: above the limit, but with a confidence interval that reaches below, it
/// is undecided.
pub fn estimated(value: f64, ci_low: f64, limit: f64) -> &'static str {
    if value <= limit {
        "met"
    } else if ci_low <= limit {
        "undecided"
    } else {
        "not met"
    }
}
