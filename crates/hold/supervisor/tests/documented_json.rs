//! docs/status-json.md shows the JSON as it is: its examples have every field and no other, and
//! every field is explained.

use belay_supervisor::report::Report;
use belay_supervisor::status::Status;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use snapbox::{IntoJson, assert_data_eq};
use std::path::PathBuf;

fn document() -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../docs/status-json.md");
    std::fs::read_to_string(path).expect("docs/status-json.md")
}

/// The example with this mark, and the text after it up to the next section.
fn example<'a>(document: &'a str, name: &str) -> (Value, &'a str) {
    let mark = format!("<!-- example: {name} -->\n```json\n");
    let (_, rest) = document.split_once(&mark).expect("the example's mark");
    let (json, rest) = rest.split_once("\n```").expect("the example's end");
    let section = rest.split("\n## ").next().unwrap_or(rest);
    (serde_json::from_str(json).expect("the example is JSON"), section)
}

fn check<T: Serialize + DeserializeOwned>(name: &str) {
    let document = document();
    let (documented, section) = example(&document, name);
    let value: T = serde_json::from_value(documented.clone()).expect("the example is complete");
    let printed = serde_json::to_value(&value).expect("JSON");
    assert_data_eq!(printed.clone().into_json(), documented.into_json().raw());
    for (field, _) in printed.as_object().expect("an object") {
        let explained = section.contains(&format!("`{field}"));
        assert!(explained || field == "schema_version", "{field} of {name} is not explained");
    }
}

#[test]
fn the_documented_status_is_what_belay_prints() {
    check::<Status>("status");
}

#[test]
fn the_documented_report_is_what_belay_writes() {
    check::<Report>("report");
}
