//! Instructions, counted by callgrind.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::driver::Side;
use super::requests::Kind;
use crate::words::of_choice;

/// Operations of a short and of a long run: what both take to begin and to end is no part of their
/// difference.
const OPERATIONS: [u64; 2] = [2_000, 6_000];

/// How many instructions belay adds to an operation of this kind.
pub fn instructions(kind: Kind) -> Result<f64> {
    let [bare, held] = [Side::Bare, Side::Held].map(|side| a_side(kind, side));
    Ok(held? - bare?)
}

fn a_side(kind: Kind, side: Side) -> Result<f64> {
    let [short, long] = OPERATIONS.map(|operations| collected(kind, side, operations));
    let [fewer, more] = OPERATIONS.map(|operations| operations as f64);
    Ok((long? - short?) / (more - fewer))
}

/// All instructions of a run of this program.
fn collected(kind: Kind, side: Side, operations: u64) -> Result<f64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe()?)
        .arg("counted")
        .args([of_choice(&kind), of_choice(&side)])
        .arg(operations.to_string())
        .output()
        .context("valgrind cannot be started: install it (`apt-get install valgrind`), or use --no-instructions")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "valgrind: {}: {said}", output.status);
    let count = said.lines().find_map(|line| line.split_once("Collected :")?.1.trim().parse().ok());
    count.with_context(|| format!("valgrind says nothing of instructions: {said}"))
}
