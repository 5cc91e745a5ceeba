//! docs/recovery.md shows the decision table as it is in the code.

#[path = "../../recorder/tests/marked/mod.rs"]
mod marked;

use belay_session::decision;

#[test]
fn the_documented_decision_table_is_the_one_in_the_code() {
    let page = snapbox::file!["../../../../docs/recovery.md"];
    marked::assert_tables(page, &[("decisions", decision::markdown())]);
}
