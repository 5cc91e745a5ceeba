//! Tables I and II of the paper, "Integrated System and Process Crash Recovery in the Loris Storage
//! Stack", section VII-A.

use belay_volume_sim::layout::Layout;

/// The columns of Table I.
pub const COLUMNS_1: [&str; 7] =
    ["PhysFS", "PhysFS+df", "TwinFS-0", "TwinFS-4", "TwinFS-8", "TwinFS-16", "TwinFS-32"];
/// Its rows. The first and the last are seconds, the others operations per second.
pub const TABLE_1: [(&str, [f64; 7]); 4] = [
    ("PostMark (transactions, s)", [1097.0, 1086.0, 1101.0, 1192.0, 1158.0, 1144.0, 1150.0]),
    ("File Server (operations/s)", [349.53, 350.25, 372.18, 343.78, 344.16, 344.16, 343.47]),
    ("Web Server (operations/s)", [549.06, 548.01, 571.78, 535.94, 536.04, 540.82, 543.57]),
    ("OpenSSH build (s)", [618.78, 620.20, 629.23, 630.96, 630.48, 630.41, 631.88]),
];
/// The columns of Table II, with the resynchronization log, but for the last of them.
pub const COLUMNS_2: [&str; 4] = ["T-4", "T-8", "T-16", "T-32"];
/// Its rows, in the order and the units of Table I.
pub const TABLE_2: [[f64; 4]; 4] = [
    [1197.0, 1161.0, 1146.0, 1153.0],
    [342.61, 345.74, 345.83, 342.04],
    [530.25, 536.86, 546.52, 539.03],
    [632.23, 632.53, 631.90, 632.33],
];

/// Its last column, "Peak": KB of data that would have to be resynchronized after a crash at most,
/// if all had been stored twice.
pub const PEAKS: [u32; 4] = [1663, 1327, 4, 1266];

/// The column of Table I with twin offset 0, which others are compared with.
const BASE: usize = 2;

/// What the paper has for a benchmark on a layout: its column, seconds, and what these are of those
/// of TwinFS-0.
pub fn of(benchmark: &str, layout: Layout) -> Option<(&'static str, f64, f64)> {
    let row = match benchmark {
        "postmark" => 0,
        "openssh" => 3,
        _ => return None,
    };
    let (first, second) = (TABLE_1.get(row)?.1, TABLE_2.get(row)?);
    let column = |names: &[&'static str], name: String| names.iter().position(|one| *one == name);
    let (name, seconds) = match layout {
        Layout::FreedAtOnce => (COLUMNS_1[0], first[0]),
        Layout::Twins(offset) => {
            let at = column(&COLUMNS_1, format!("TwinFS-{offset}"))?;
            (COLUMNS_1[at], first[at])
        }
        Layout::InPlace(offset) => {
            let at = column(&COLUMNS_2, format!("T-{offset}"))?;
            (COLUMNS_2[at], second[at])
        }
    };
    Some((name, seconds, seconds / first[BASE]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_layout_has_the_papers_figures() {
        for layout in Layout::ALL {
            for benchmark in ["postmark", "openssh"] {
                assert!(of(benchmark, layout).is_some(), "{layout}, {benchmark}");
            }
            assert!(of("Sequential read", layout).is_none());
        }
        assert_eq!(
            of("postmark", Layout::Twins(16)).map(|(name, seconds, _)| (name, seconds)),
            Some(("TwinFS-16", 1144.0))
        );
        assert_eq!(
            of("openssh", Layout::InPlace(16)).map(|(name, seconds, _)| (name, seconds)),
            Some(("T-16", 631.90))
        );
        // "An overhead of 2 to 8 %", compared with the best of the unsafe ones.
        let (best, ours) = (1086.0, 1144.0);
        assert!((1.02..1.08).contains(&(ours / best)));
    }
}
