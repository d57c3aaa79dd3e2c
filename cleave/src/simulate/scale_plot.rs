//! Load, wanted and ready replicas over time as one SVG that needs nothing else: a row for each rule, a column for each
//! start-up time.

use std::fmt::Write as _;

use cleave_sim::measure::real;
use cleave_sim::world::FleetPoint;

use super::scale::ScaleRun;

const WIDE: f64 = 420.0;
const HIGH: f64 = 110.0;
const GAP: f64 = 40.0;
const TOP: f64 = 48.0;
/// Columns of the plot; more points than these say nothing more.
const COLUMNS: usize = 420;
const LOAD: &str = "#d4d4d8";
const WANTED: &str = "#d97706";
const READY: &str = "#2563eb";

pub(super) fn draw(runs: &[ScaleRun]) -> String {
    let mut columns: Vec<f64> = Vec::new();
    for it in runs {
        if !columns.iter().any(|known| (known - it.start_up_s).abs() < 1e-9) {
            columns.push(it.start_up_s);
        }
    }
    let rows = runs.len().div_ceil(columns.len().max(1));
    let width = GAP + count(columns.len()) * (WIDE + GAP);
    let height = TOP + count(rows) * (HIGH + GAP);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{GAP}\" y=\"20\"><tspan fill=\"#71717a\">■ load, in replicas</tspan> \
         <tspan fill=\"{WANTED}\">■ wanted</tspan> <tspan fill=\"{READY}\">■ ready</tspan></text>\n"
    );
    let most = runs.iter().map(top_of).fold(1.0, f64::max);
    for (at, start_up_s) in columns.iter().enumerate() {
        let left = GAP + count(at) * (WIDE + GAP);
        let column = runs.iter().filter(|it| (it.start_up_s - start_up_s).abs() < 1e-9);
        for (row, it) in column.enumerate() {
            let top = TOP + count(row) * (HIGH + GAP);
            let title = format!("{}, start-up {start_up_s} s", it.scaler.as_str());
            panel(&mut svg, it, &title, (left, top), most);
        }
    }
    svg.push_str("</svg>\n");
    svg
}

fn top_of(run: &ScaleRun) -> f64 {
    run.points.iter().map(|it| count(it.wanted.max(it.ready))).fold(0.0, f64::max)
}

fn panel(svg: &mut String, run: &ScaleRun, title: &str, (left, top): (f64, f64), most: f64) {
    let bottom = top + HIGH;
    let step = run.points.len().div_ceil(COLUMNS).max(1);
    let chunks: Vec<&[FleetPoint]> = run.points.chunks(step).collect();
    let x = |at: usize| left + WIDE * count(at) / count(chunks.len().max(1));
    let y = |value: f64| bottom - HIGH * (value / most).clamp(0.0, 1.0);
    let capacity = run.load.capacity_mu_per_min.max(1e-9);
    let mut area = format!("M{left:.1} {bottom:.1}");
    let (mut wanted, mut ready) = (String::new(), String::new());
    for (at, chunk) in chunks.iter().enumerate() {
        let sum: f64 = chunk.iter().map(|it| it.offered_mu_per_min).sum();
        _ = write!(area, "L{:.1} {:.1}", x(at), y(sum / count(chunk.len()) / capacity));
        let peak = |of: fn(&FleetPoint) -> usize| count(chunk.iter().map(of).max().unwrap_or(0));
        _ = write!(wanted, "{:.1},{:.1} ", x(at), y(peak(|it| it.wanted)));
        _ = write!(ready, "{:.1},{:.1} ", x(at), y(peak(|it| it.ready)));
    }
    _ = writeln!(svg, "<text x=\"{left}\" y=\"{}\">{title}</text>", top - 6.0);
    _ = writeln!(svg, "<path d=\"{area}L{:.1} {bottom:.1}Z\" fill=\"{LOAD}\"/>", x(chunks.len()));
    for (line, colour) in [(&wanted, WANTED), (&ready, READY)] {
        _ = writeln!(svg, "<polyline points=\"{line}\" fill=\"none\" stroke=\"{colour}\"/>");
    }
    _ = writeln!(
        svg,
        "<line x1=\"{left}\" y1=\"{bottom}\" x2=\"{:.1}\" y2=\"{bottom}\" stroke=\"#999\"/>\
         <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" font-size=\"10\">{most}</text>",
        left + WIDE,
        left - 4.0,
        top + 8.0
    );
}

fn count(number: usize) -> f64 {
    real(u64::try_from(number).unwrap_or(u64::MAX))
}
