//! docs/recorder.md says what the code does.
#![allow(missing_docs)]

mod marked;

use belay_recorder::layout::{
    DECISION_WORDS, DECISIONS, HANDLE_WORDS, NODE_WORDS, SLOT_WORDS, UNDO_PAIRS,
};
use belay_recorder::{Capacity, Layout, MAX_BODY, MAX_NAME, MAX_REPLY};
use marked::table::{numbers, tabulate, words};

fn grouped(n: usize) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

fn size(bytes: usize) -> String {
    match bytes {
        0..0x10_0000 => format!("{} KiB", bytes.div_ceil(1 << 10)),
        0x10_0000..0x4000_0000 => format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20)),
        _ => format!("{:.2} GiB", bytes as f64 / f64::from(1 << 30)),
    }
}

fn areas(layout: &Layout) -> Vec<(&'static str, usize)> {
    vec![
        ("control", 0),
        ("undo", layout.undo),
        ("store header", layout.store),
        ("decisions", layout.decisions),
        ("name index", layout.name_index),
        ("id index", layout.id_index),
        ("ino index", layout.ino_index),
        ("slots", layout.slots),
        ("handles", layout.handles),
        ("nodes", layout.nodes),
        ("heap", layout.heap),
        ("copies", layout.copies),
        ("effects", layout.effects),
        ("remains", layout.remains),
        ("logs", layout.logs),
        ("epochs", layout.epochs),
    ]
}

fn area_table() -> String {
    let layout = Layout::new(Capacity::MOUNT);
    let areas = areas(&layout);
    let mut rows = Vec::new();
    let ends = areas.iter().skip(1).map(|area| area.1).chain([layout.words]);
    for ((name, start), end) in areas.iter().zip(ends) {
        let (count, bytes) = (grouped(end - start), size((end - start) * 8));
        rows.push(vec![(*name).to_owned(), grouped(*start), count, bytes]);
    }
    let all = ["all".to_owned(), String::new(), grouped(layout.words), size(layout.bytes())];
    rows.push(all.to_vec());
    let columns = [words("area"), numbers("starts at"), numbers("words"), numbers("size")];
    tabulate(&columns, rows)
}

fn limit_table() -> String {
    let mount = Layout::new(Capacity::MOUNT);
    let limits = [
        ("nodes known to the kernel, with the root", mount.capacity.nodes - 1),
        ("open handles", mount.capacity.handles - 1),
        ("requests in flight", mount.capacity.slots),
        (
            "heap units for names, locks, streams and hidden items",
            mount.capacity.heap_words / 2 - 1,
        ),
        ("bytes of a name", MAX_NAME),
        ("bytes of a request's body in its slot (the rest is cut off)", MAX_BODY),
        ("bytes of a recorded reply", MAX_REPLY),
        ("bytes of a request copy", mount.copy_words * 8),
        ("words set in one change", mount.undo_pairs),
        ("decisions kept", DECISIONS),
        ("bytes of a decision's text", (DECISION_WORDS - 6) * 8),
    ];
    let rows = limits.map(|(what, most)| vec![what.to_owned(), grouped(most)]);
    tabulate(&[words("what"), numbers("most")], rows)
}

#[test]
fn tables_are_those_of_the_code() {
    let page = snapbox::file!["../../../../docs/recorder.md"];
    marked::assert_tables(page, &[("areas", area_table()), ("limits", limit_table())]);
}

#[test]
fn areas_follow_one_another_as_the_formulae_say() {
    let page = |words: usize| words.div_ceil(512) * 512;
    for capacity in [
        Capacity::MOUNT,
        Capacity::SMALL,
        Capacity {
            nodes: 1,
            handles: 1,
            slots: 1,
            heap_words: 1,
            copy_bytes: 1,
            effect_bytes: 1,
            epoch_bytes: 1,
        },
        Capacity {
            nodes: 1000,
            handles: 77,
            slots: 3,
            heap_words: 12_345,
            copy_bytes: 4097,
            effect_bytes: 8193,
            epoch_bytes: 5,
        },
    ] {
        let layout = Layout::new(capacity);
        let Capacity {
            nodes: n,
            handles: h,
            slots: s,
            heap_words: w,
            copy_bytes: c,
            effect_bytes: e,
            epoch_bytes: b,
        } = capacity;
        assert_eq!(layout.undo_pairs, 8192.max(n / 32));
        let sizes = [
            2560,
            page(1 + 2 * layout.undo_pairs),
            512,
            page(256 * 64),
            page(n),
            page(n),
            page(n),
            page(512 * s),
            page(12 * h),
            page(8 * n),
            page(w),
            s * page(c.div_ceil(8)),
            1024,
            32_768,
            (s + 1) * page(e.div_ceil(8)),
            page(b.div_ceil(8)),
        ];
        let mut at = 0;
        for ((name, start), words) in areas(&layout).into_iter().zip(sizes) {
            assert_eq!(start, at, "{name}");
            at += words;
        }
        assert_eq!(layout.words, at);
        assert_eq!(layout.bytes(), 8 * at);
        assert!(s * layout.copy_words * 8 >= s * c, "copies fit");
    }
    assert_eq!((UNDO_PAIRS, DECISIONS, DECISION_WORDS), (8192, 256, 64));
    assert_eq!((NODE_WORDS, HANDLE_WORDS, SLOT_WORDS), (8, 12, 512));
    assert_eq!((MAX_NAME, MAX_REPLY, MAX_BODY), (1024, 20 * 8, 484 * 8));
}
