//! What an image holds after a power failure, and whether that is right.
//!
//! Checkpoints lie between requests. So what an application has done is there up to some part of
//! some step, and nothing of what it did later; and that part is not before the last step that it
//! knows to be durable.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use belay_fixtures::{Kind, process};
use belay_study::digest::hex;

use super::work::{Node, Step, Tree};

const LIMIT: Duration = Duration::from_secs(60);

/// Reads what is in an image of ext2, ext3, ext4 or FAT, by a tool that has no part in writing it.
/// `folder` must not exist.
pub fn read_image(kind: Kind, image: &Path, folder: &Path) -> Result<Tree> {
    std::fs::create_dir(folder).with_context(|| format!("creating {}", folder.display()))?;
    if kind == Kind::Fusefat {
        copy_fat(image, folder)?;
    } else {
        dump_ext(image, folder)?;
    }
    let tree = read_folder(folder)?;
    std::fs::remove_dir_all(folder).with_context(|| format!("removing {}", folder.display()))?;
    Ok(tree)
}

fn copy_fat(image: &Path, folder: &Path) -> Result<()> {
    let mut mcopy = Command::new("mcopy");
    // fusefat leaves the first entry of the table as 0, which mtools alone minds.
    mcopy.env("MTOOLS_SKIP_CHECK", "1").args(["-s", "-n", "-i"]).arg(image).arg("::/").arg(folder);
    let output = process::run_ok(mcopy, LIMIT).context("reading an image (of mtools)")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(said.trim().is_empty(), "mcopy says of {}: {said}", image.display());
    Ok(())
}

fn dump_ext(image: &Path, folder: &Path) -> Result<()> {
    let mut debugfs = Command::new("debugfs");
    let path = std::env::var("PATH").unwrap_or_default();
    debugfs.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    debugfs.arg("-R").arg(format!("rdump / \"{}\"", folder.display())).arg(image);
    let output = process::run_ok(debugfs, LIMIT).context("reading an image (of e2fsprogs)")?;
    // It always says its version, and that nothing is wrong only by its silence.
    let said = String::from_utf8_lossy(&output.stderr);
    if let Some(wrong) = said.lines().find(|line| !line.starts_with("debugfs ")) {
        bail!("debugfs says of {}: {wrong}", image.display());
    }
    Ok(())
}

/// Reads what is in a folder.
pub fn read_folder(folder: &Path) -> Result<Tree> {
    read_but(folder, None)
}

/// Reads what is in a folder, but for what has that name in it.
pub fn read_but(folder: &Path, other: Option<&str>) -> Result<Tree> {
    let mut tree = Tree::new();
    let mut todo = vec![String::new()];
    while let Some(inside) = todo.pop() {
        let listing = || format!("listing /{inside}");
        for entry in std::fs::read_dir(folder.join(&inside)).with_context(listing)? {
            let entry = entry.with_context(listing)?;
            let name = entry.file_name().into_string();
            let name = name.map_err(|name| anyhow!("{} is no name", name.display()))?;
            // Files that were removed while they were open, until they are closed.
            let hidden = name.starts_with(".fuse_hidden") || name.starts_with(".belay-hidden");
            let is_other = name == "lost+found" || other == Some(name.as_str());
            if hidden || inside.is_empty() && is_other {
                continue;
            }
            let path = if inside.is_empty() { name } else { format!("{inside}/{name}") };
            let looking = || format!("looking at /{path}");
            let kind = entry.file_type().with_context(looking)?;
            let node = if kind.is_dir() {
                todo.push(path.clone());
                Node::Folder
            } else if kind.is_file() {
                Node::File(Arc::new(std::fs::read(entry.path()).with_context(looking)?))
            } else if kind.is_symlink() {
                let target = std::fs::read_link(entry.path()).with_context(looking)?;
                Node::Link(target.display().to_string())
            } else {
                bail!("/{path} is a {kind:?}, which nobody made");
            };
            tree.insert(path, node);
        }
    }
    Ok(tree)
}

/// The part of a tree that is in a folder, with that.
pub fn part(tree: &Tree, folder: &str) -> Tree {
    let below = format!("{folder}/");
    let inside = |path: &str| path == folder || path.starts_with(&below);
    tree.iter().filter(|(path, _)| inside(path)).map(|(p, n)| (p.clone(), n.clone())).collect()
}

/// How many steps of an application are in a tree, entirely. At least `durable` must be, and at
/// most all of `steps`.
pub fn steps_in(found: &Tree, steps: impl Iterator<Item = Step>, durable: usize) -> Result<usize> {
    let mut model = Tree::new();
    let mut earlier = None;
    let mut closest: Option<(usize, usize, String)> = None;
    let mut look = |model: &Tree, done: usize| {
        if model == found {
            if done >= durable {
                return true;
            }
            earlier = Some(done);
        } else if done >= durable {
            let (count, text) = difference(model, found);
            if closest.as_ref().is_none_or(|(least, ..)| count < *least) {
                closest = Some((count, done, text));
            }
        }
        false
    };
    if look(&model, 0) {
        return Ok(0);
    }
    for (done, step) in steps.enumerate() {
        let parts = step.parts();
        for (i, part) in parts.iter().enumerate() {
            part.apply(&mut model);
            let whole = i + 1 == parts.len();
            if look(&model, if whole { done + 1 } else { done }) {
                return Ok(if whole { done + 1 } else { done });
            }
        }
    }
    if let Some(earlier) = earlier {
        bail!("{durable} steps were acknowledged as durable, and only {earlier} are there");
    }
    let (_, done, text) = closest.unwrap_or_default();
    bail!("it is as after no step; closest after {done} (at least {durable} are durable): {text}");
}

/// How many paths differ, and the first few.
pub fn difference(expected: &Tree, found: &Tree) -> (usize, String) {
    let mut count = 0;
    let mut text = Vec::new();
    let mut paths: Vec<&String> = expected.keys().chain(found.keys()).collect();
    paths.sort_unstable();
    paths.dedup();
    for path in paths {
        let (a, b) = (expected.get(path), found.get(path));
        if a != b {
            count += 1;
            if text.len() < 4 {
                let place = first_difference(a, b).unwrap_or_default();
                text.push(format!("{path}: expected {}, found {}{place}", say(a), say(b)));
            }
        }
    }
    (count, text.join("; "))
}

/// Between which bytes two files differ, and by what there.
fn first_difference(expected: Option<&Node>, found: Option<&Node>) -> Option<String> {
    let (Some(Node::File(expected)), Some(Node::File(found))) = (expected, found) else {
        return None;
    };
    let differs = |at: &usize| expected.get(*at) != found.get(*at);
    let first = (0..expected.len().min(found.len())).find(differs)?;
    let last = (0..expected.len()).rev().find(differs)?;
    Some(format!(
        ", which differ from byte {first} to {last} ({}.. and {}..)",
        hex(&expected[first..]),
        hex(&found[first..])
    ))
}

fn say(node: Option<&Node>) -> String {
    match node {
        None => "nothing".to_owned(),
        Some(Node::Folder) => "a directory".to_owned(),
        Some(Node::Link(target)) => format!("a link to {target}"),
        Some(Node::File(content)) => {
            format!("a file of {} bytes ({}..)", content.len(), hex(content))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::work::Script;
    use super::*;

    fn after(count: usize) -> Tree {
        let mut tree = Tree::new();
        Script::new(5, "c").take(count).for_each(|step| step.apply(&mut tree));
        tree
    }

    #[test]
    fn places_are_found_and_lies_are_not_believed() {
        let steps = || Script::new(5, "c").take(120);
        for done in [0, 1, 40, 119] {
            // Steps that change nothing look like the one before.
            let found = steps_in(&after(done), steps(), done.saturating_sub(3)).unwrap();
            assert!(found <= done && after(found) == after(done));
        }
        let lost = steps_in(&after(20), steps(), 60).unwrap_err().to_string();
        assert!(lost.contains("60 steps were acknowledged"), "{lost}");
        let mut corrupt = after(80);
        corrupt.insert("c/new".to_owned(), Node::Folder);
        let text = steps_in(&corrupt, steps(), 10).unwrap_err().to_string();
        assert!(text.contains("c/new: expected nothing, found a directory"), "{text}");
    }

    #[test]
    fn writes_may_be_there_in_part() {
        let steps = || {
            let path = || "c/f".to_owned();
            let write = Step::Write(path(), 100, 9000, 7);
            [Step::Folder("c".to_owned()), Step::Create(path()), write.clone(), Step::Sync(path())]
                .into_iter()
        };
        let mut tree = Tree::new();
        steps().take(2).for_each(|step| step.apply(&mut tree));
        let write = steps().nth(2).unwrap();
        let parts = write.parts();
        assert_eq!(parts.len(), 3);
        parts[0].apply(&mut tree);
        assert_eq!(steps_in(&tree, steps(), 0).unwrap(), 2);
        parts[2].apply(&mut tree);
        assert!(steps_in(&tree, steps(), 0).is_err(), "the middle is missing");
    }
}
