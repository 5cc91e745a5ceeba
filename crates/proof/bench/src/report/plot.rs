//! Plots as SVG text, for the HTML page.

use plotters::prelude::*;

use super::goals;
use crate::model::{BlackoutFixture, CostFixture, MemoryFixture, MemoryPoint};
use crate::stats::percentile;

const WIDTH: u32 = 960;
const COLOURS: [RGBColor; 6] = [
    RGBColor(31, 119, 180),
    RGBColor(214, 95, 14),
    RGBColor(44, 140, 80),
    RGBColor(148, 80, 170),
    RGBColor(120, 90, 60),
    RGBColor(60, 60, 60),
];

type Drawn = Result<(), Box<dyn std::error::Error>>;

/// Draws into an SVG text; empty where there is nothing to draw or it cannot be drawn.
fn svg(
    height: u32,
    draw: impl FnOnce(&DrawingArea<SVGBackend<'_>, plotters::coord::Shift>) -> Drawn,
) -> String {
    let mut text = String::new();
    let drawn = {
        let area = SVGBackend::with_string(&mut text, (WIDTH, height)).into_drawing_area();
        draw(&area).and_then(|()| area.present().map_err(Into::into))
    };
    match drawn {
        Ok(()) => text,
        Err(error) => {
            eprintln!("a plot is left out: {error}");
            String::new()
        }
    }
}

fn colour(index: usize) -> RGBColor {
    COLOURS[index % COLOURS.len()]
}

/// A little more than the range of `values`, such that `must` is inside.
fn range(values: impl Iterator<Item = f64>, must: [f64; 2]) -> (f64, f64) {
    let (low, high) =
        values.filter(|v| v.is_finite()).fold((must[0], must[1]), |(l, h), v| (l.min(v), h.max(v)));
    let margin = (high - low) * 0.04;
    (low - margin, high + margin)
}

/// The ratio of each operation: estimate, and its confidence interval as a bar. `aim`: where a line
/// is for it.
pub fn cost(fixtures: &[CostFixture], aim: Option<f64>) -> String {
    let mut names: Vec<(String, usize)> = Vec::new();
    for case in fixtures.iter().flat_map(|b| &b.cases) {
        let name = (case.op.clone(), case.threads);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    if names.is_empty() {
        return String::new();
    }
    let rows = u32::try_from(names.len()).unwrap_or(u32::MAX / 64);
    let intervals = fixtures
        .iter()
        .flat_map(|b| &b.cases)
        .flat_map(|c| [c.estimate.ci_low, c.estimate.ci_high]);
    let (low, high) = range(intervals, [0.98, goals::COST_EACH + 0.01]);
    svg(90 + 20 * rows, |area| {
        area.fill(&WHITE)?;
        let last = rows as f64;
        let mut chart = ChartBuilder::on(area)
            .margin(10)
            .x_label_area_size(40)
            .y_label_area_size(200)
            .build_cartesian_2d(low..high, last..0.0)?;
        let label = |y: &f64| {
            // Row `i` has its middle at `i + 0.5`.
            let row = (y - 0.5).round();
            let (op, threads) = names.get(row as usize).cloned().unwrap_or_default();
            if (y - 0.5 - row).abs() < 1e-6 && threads > 0 {
                format!("{op} ×{threads}")
            } else {
                String::new()
            }
        };
        chart
            .configure_mesh()
            .disable_y_mesh()
            .disable_y_axis()
            .y_labels(0)
            .light_line_style(TRANSPARENT)
            .x_desc("held / bare, with its 95 % confidence interval")
            .draw()?;
        for row in 0..names.len() {
            let y = row as f64 + 0.5;
            let (_, pixel) = chart.backend_coord(&(low, y));
            area.draw(&Text::new(label(&y), (10, pixel - 7), ("sans-serif", 13).into_font()))?;
        }
        let aim = aim.map(|aim| (aim, RED.mix(0.6)));
        for (limit, style) in [(1.0, BLACK.mix(0.6))].into_iter().chain(aim) {
            chart.draw_series(LineSeries::new([(limit, 0.0), (limit, last)], style))?;
        }
        for (index, fixture) in fixtures.iter().enumerate() {
            let c = colour(index);
            let shift = (index as f64 + 1.0) / (fixtures.len() as f64 + 1.0);
            for case in &fixture.cases {
                let row = names
                    .iter()
                    .position(|(op, threads)| *op == case.op && *threads == case.threads);
                let y = row.unwrap_or(0) as f64 + shift;
                chart.draw_series(LineSeries::new(
                    [(case.estimate.ci_low, y), (case.estimate.ci_high, y)],
                    c.stroke_width(3),
                ))?;
                chart.draw_series([Circle::new((case.estimate.ratio, y), 4, c.filled())])?;
            }
            chart
                .draw_series(LineSeries::new(std::iter::empty(), c.stroke_width(3)))?
                .label(fixture.fixture.clone())
                .legend(move |(x, y)| Circle::new((x + 10, y), 4, c.filled()));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.3))
            .draw()?;
        Ok(())
    })
}

/// Memory against cached nodes, bare and held, all processes together.
pub fn memory(fixtures: &[MemoryFixture]) -> String {
    let mib = f64::from(1 << 20);
    let all = |p: &MemoryPoint| {
        let processes = [Some(p.daemon), p.supervisor, p.keeper];
        let bytes: u64 =
            processes.into_iter().flatten().map(|m| m.pss - m.pss_shmem.min(m.pss)).sum();
        (bytes + p.memfd) as f64 / mib
    };
    let line = |points: &[MemoryPoint]| -> Vec<(f64, f64)> {
        points.iter().filter(|p| p.open_files == 0).map(|p| (p.nodes as f64, all(p))).collect()
    };
    let points: Vec<(f64, f64)> =
        fixtures.iter().flat_map(|b| [line(&b.bare), line(&b.held)]).flatten().collect();
    if points.is_empty() {
        return String::new();
    }
    let nodes = points.iter().map(|p| p.0).fold(1.0, f64::max);
    let (_, high) = range(points.iter().map(|p| p.1), [0.0, 1.0]);
    svg(420, |area| {
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(area)
            .margin(10)
            .x_label_area_size(40)
            .y_label_area_size(60)
            .build_cartesian_2d(0.0..nodes * 1.02, 0.0..high)?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .x_label_formatter(&|x| format!("{x:.0}"))
            .x_desc("nodes looked up")
            .y_desc("MiB, daemon and belay together")
            .draw()?;
        for (index, fixture) in fixtures.iter().enumerate() {
            let c = colour(index);
            for (mode, points, width) in [("bare", &fixture.bare, 1), ("held", &fixture.held, 3)] {
                chart
                    .draw_series(
                        LineSeries::new(line(points), c.stroke_width(width)).point_size(3),
                    )?
                    .label(format!("{} {mode}", fixture.fixture))
                    .legend(move |(x, y)| {
                        PathElement::new([(x, y), (x + 18, y)], c.stroke_width(width))
                    });
            }
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.3))
            .draw()?;
        Ok(())
    })
}

/// For each daemon all samples as dots with their median: the bare daemon's starts, and the pauses.
pub fn blackout(fixtures: &[BlackoutFixture]) -> String {
    let mut rows: Vec<(String, &[f64], RGBColor)> = Vec::new();
    for fixture in fixtures {
        rows.push((format!("{} bare start", fixture.fixture), &fixture.bare_start_us, colour(5)));
        rows.push((format!("{} pause", fixture.fixture), &fixture.pause_us, colour(0)));
    }
    rows.retain(|row| !row.1.is_empty());
    if rows.is_empty() {
        return String::new();
    }
    let ms = |us: &f64| us / 1e3;
    let high = rows.iter().flat_map(|r| r.1).map(ms).fold(0.1, f64::max) * 1.1;
    let low = rows.iter().flat_map(|r| r.1).map(ms).fold(high, f64::min) * 0.9;
    let names: Vec<String> = rows.iter().map(|r| r.0.clone()).collect();
    let height = 80 + 34 * u32::try_from(rows.len()).unwrap_or(1);
    svg(height, |area| {
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(area)
            .margin(10)
            .x_label_area_size(40)
            .y_label_area_size(200)
            .build_cartesian_2d(
                (low.max(1e-3)..high).log_scale(),
                (0..rows.len()).into_segmented(),
            )?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .light_line_style(BLACK.mix(0.08))
            .y_label_formatter(&|row| match row {
                SegmentValue::CenterOf(i) => names.get(*i).cloned().unwrap_or_default(),
                _ => String::new(),
            })
            .y_labels(rows.len())
            .x_label_formatter(&|x| format!("{x:.1}"))
            .x_desc("milliseconds (logarithmic)")
            .draw()?;
        for (index, (_, samples, c)) in rows.iter().enumerate() {
            let at = SegmentValue::CenterOf(index);
            chart.draw_series(
                samples.iter().map(|s| Circle::new((ms(s), at.clone()), 3, c.mix(0.3).filled())),
            )?;
            let median = percentile(samples, 0.5).unwrap_or(0.0);
            chart.draw_series([TriangleMarker::new((ms(&median), at), 9, c.filled())])?;
        }
        Ok(())
    })
}
