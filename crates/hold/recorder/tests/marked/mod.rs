//! Tables that a page has from the code, each between the marks `<!-- name -->` and `<!-- /name
//! -->`.

// As all pages have them; a test uses a part of it.
#[allow(dead_code)]
#[path = "../../../../proof/fixtures/src/table.rs"]
pub mod table;

use snapbox::{Data, assert_data_eq};

/// Looks whether the page has these tables. The prose around them is as it says itself, so with
/// `SNAPSHOTS=overwrite` the tables alone are written anew.
#[track_caller]
pub fn assert_tables(page: Data, tables: &[(&str, String)]) {
    let mut text = page.render().expect("the page");
    for (name, table) in tables {
        let (open, close) = (format!("<!-- {name} -->\n"), format!("<!-- /{name} -->"));
        let start = text.find(&open).expect("the mark before the table") + open.len();
        let end = text.find(&close).expect("the mark after the table");
        text.replace_range(start..end, table);
    }
    assert_data_eq!(text, page.raw());
}
