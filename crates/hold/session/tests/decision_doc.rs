//! docs/recovery.md shows the decision table as it is in the code.
//!
//! `BELAY_BLESS=1 cargo test -p belay-session --test decision_doc` (or `make bless`) prints it there
//! again.

use belay_session::decision;
use std::path::PathBuf;

const BEGIN: &str = "<!-- decision table: printed from the code, see `make bless` -->\n";
const END: &str = "<!-- end of the decision table -->\n";

#[test]
fn the_documented_decision_table_is_the_one_in_the_code() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../docs/recovery.md");
    let text = std::fs::read_to_string(&path).expect("docs/recovery.md");
    let (before, rest) = text.split_once(BEGIN).expect("the mark before the table");
    let (documented, after) = rest.split_once(END).expect("the mark after the table");
    let table = decision::markdown();
    if documented == table {
        return;
    }
    if std::env::var_os("BELAY_BLESS").is_some() {
        std::fs::write(&path, [before, BEGIN, &table, END, after].concat()).expect("write");
        return;
    }
    panic!("the table in docs/recovery.md is not the one in the code: run `make bless`\n{table}");
}
