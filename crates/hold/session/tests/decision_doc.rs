//! docs/recovery.md shows the decision table as it is in the code.

#[path = "../../recorder/tests/marked/mod.rs"]
mod marked;

use belay_session::decision;
use marked::table::{tabulate, words};

#[test]
fn the_documented_decision_table_is_the_one_in_the_code() {
    let page = snapbox::file!["../../../../docs/recovery.md"];
    let titles =
        ["row", "the dead generation", "request", "the successor says", "action", "because"];
    let rows = decision::TABLE.iter().map(|row| decision::cells(row).to_vec());
    let table = tabulate(&titles.map(words), rows);
    marked::assert_tables(page, &[("decisions", table)]);
}
