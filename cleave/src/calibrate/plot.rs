//! Draws a calibration as one SVG that needs nothing else: predicted over measured times, where a good
//! fit lies on the diagonal, and throughput over concurrency, where the knee shows. Two panels do not
//! justify a plotting crate.

use std::fmt::Write as _;

use cleave_core::cost::predict_rate;

use super::grid::Cell;
use super::replica::Calibration;

const PANEL: f64 = 360.0;
const MARGIN: f64 = 64.0;
const HEIGHT: f64 = PANEL + 2.0 * MARGIN;
const WIDTH: f64 = 2.0 * PANEL + 3.0 * MARGIN;
const PROMPT_COLOUR: &str = "#2563eb";
const BATCH_COLOUR: &str = "#d97706";

/// One panel: where values on two axes lie on the page.
struct CalibrationPanel {
    left: f64,
    x: Axis,
    y: Axis,
}

/// The range of an axis, and whether equal factors take equal room on it.
struct Axis {
    low: f64,
    high: f64,
    is_log: bool,
}

impl Axis {
    /// Spans whole powers of ten, so that its ends can be labelled.
    fn log(values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = values
            .filter(|it| it.is_finite() && 0.0 < *it)
            .fold((f64::INFINITY, 0.0_f64), |(low, high), it| (low.min(it), high.max(it)));
        if high <= 0.0 {
            return Self { low: 1.0, high: 10.0, is_log: true };
        }
        let (low, high) = (low.log10().floor(), high.log10().ceil());
        Self { low: 10_f64.powf(low), high: 10_f64.powf(high.max(low + 1.0)), is_log: true }
    }

    fn place(&self, value: f64) -> f64 {
        let share = if self.is_log {
            (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        share.clamp(0.0, 1.0)
    }
}

impl CalibrationPanel {
    fn at(&self, x: f64, y: f64) -> (f64, f64) {
        (self.left + PANEL * self.x.place(x), MARGIN + PANEL * (1.0 - self.y.place(y)))
    }

    fn frame(&self, svg: &mut String, title: &str, x: &str, y: &str) {
        let (left, right, bottom) = (self.left, self.left + PANEL, MARGIN + PANEL);
        let middle = left + PANEL / 2.0;
        put(
            svg,
            format_args!(
                "<rect x=\"{left}\" y=\"{MARGIN}\" width=\"{PANEL}\" height=\"{PANEL}\" fill=\"none\" stroke=\"#999\"/>\
             <text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\" font-weight=\"bold\">{title}</text>\
             <text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{x}</text>\
             <text x=\"{}\" y=\"{}\" text-anchor=\"middle\" transform=\"rotate(-90 {0} {1})\">{y}</text>",
                MARGIN - 16.0,
                bottom + 40.0,
                left - 40.0,
                MARGIN + PANEL / 2.0,
            ),
        );
        for (value, anchor, at) in [(self.x.low, "start", left), (self.x.high, "end", right)] {
            put(
                svg,
                format_args!(
                    "<text x=\"{at}\" y=\"{}\" text-anchor=\"{anchor}\">{value}</text>",
                    bottom + 18.0
                ),
            );
        }
        for (value, at) in [(self.y.low, bottom), (self.y.high, MARGIN + 10.0)] {
            put(
                svg,
                format_args!(
                    "<text x=\"{}\" y=\"{at}\" text-anchor=\"end\">{value:.0}</text>",
                    left - 6.0
                ),
            );
        }
    }

    fn line(&self, svg: &mut String, points: impl Iterator<Item = (f64, f64)>, look: &str) {
        let points: Vec<String> =
            points.map(|(x, y)| self.at(x, y)).map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        put(svg, format_args!("<polyline points=\"{}\" fill=\"none\" {look}/>", points.join(" ")));
    }

    fn dot(&self, svg: &mut String, x: f64, y: f64, colour: &str, told: &str) {
        let (x, y) = self.at(x, y);
        put(
            svg,
            format_args!(
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{colour}\" fill-opacity=\"0.7\"><title>{told}</title></circle>"
            ),
        );
    }
}

fn put(svg: &mut String, words: std::fmt::Arguments<'_>) {
    svg.write_fmt(words).expect("a string takes everything");
    svg.push('\n');
}

/// Keeps what others named from being read as markup.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

pub(super) fn draw(calibration: &Calibration) -> String {
    let mut svg = String::new();
    put(
        &mut svg,
        format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" \
         height=\"{HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>"
        ),
    );
    let entry = &calibration.coefficients;
    let named = format!("{} on {}, {} ({})", entry.model, entry.class, entry.source, entry.date);
    put(&mut svg, format_args!("<text x=\"{MARGIN}\" y=\"24\">{}</text>", escape(&named)));
    draw_fit(&mut svg, calibration);
    draw_ladder(&mut svg, calibration);
    svg.push_str("</svg>\n");
    svg
}

fn draw_fit(svg: &mut String, calibration: &Calibration) {
    let Calibration { fit, findings, .. } = calibration;
    let cells: Vec<(Cell, f64, f64)> = findings
        .cells
        .iter()
        .map(|it| (it.cell, it.sample.ms, fit.predict_ms(&it.sample)))
        .collect();
    let axis = || Axis::log(cells.iter().flat_map(|it| [it.1, it.2]));
    let panel = CalibrationPanel { left: MARGIN, x: axis(), y: axis() };
    panel.frame(svg, "Predicted and measured", "measured, ms", "predicted, ms");
    let ends = [panel.x.low, panel.x.high];
    panel.line(svg, ends.into_iter().map(|it| (it, it)), "stroke=\"#999\" stroke-dasharray=\"4\"");
    for (cell, measured, predicted) in cells {
        let colour = match cell {
            Cell::Prompt { .. } => PROMPT_COLOUR,
            Cell::Batch { .. } => BATCH_COLOUR,
        };
        let told = format!("{cell}: {measured:.1} ms measured, {predicted:.1} ms predicted");
        panel.dot(svg, measured, predicted, colour, &told);
    }
    for (at, colour, told) in
        [(0.0, PROMPT_COLOUR, "first token of a prompt"), (1.0, BATCH_COLOUR, "step of a batch")]
    {
        let (x, y) = (MARGIN + 12.0, MARGIN + 18.0 + 18.0 * at);
        put(
            svg,
            format_args!(
                "<circle cx=\"{x}\" cy=\"{}\" r=\"4\" fill=\"{colour}\"/><text x=\"{}\" y=\"{y}\">{told}</text>",
                y - 4.0,
                x + 10.0
            ),
        );
    }
}

fn draw_ladder(svg: &mut String, calibration: &Calibration) {
    let Calibration { coefficients, fit, findings } = calibration;
    let points: Vec<(f64, f64)> =
        findings.rungs.iter().map(|it| (f64::from(it.concurrency), it.requests_per_min)).collect();
    let predicted: Vec<(f64, f64)> = findings
        .rungs
        .iter()
        .map(|it| {
            let rate = predict_rate(&fit.times, findings.mix, it.concurrency);
            (f64::from(it.concurrency), rate)
        })
        .collect();
    let top = points.iter().chain(&predicted).map(|it| it.1).fold(1.0, f64::max);
    let right = points.iter().map(|it| it.0).fold(2.0, f64::max);
    let panel = CalibrationPanel {
        left: 2.0 * MARGIN + PANEL,
        x: Axis { low: 1.0, high: right, is_log: true },
        y: Axis { low: 0.0, high: 1.1 * top, is_log: false },
    };
    panel.frame(svg, "Throughput", "requests at a time", "requests a minute");
    let knee = f64::from(coefficients.knee.concurrency);
    let upright = [(knee, panel.y.low), (knee, panel.y.high)];
    panel.line(svg, upright.into_iter(), "stroke=\"#dc2626\" stroke-dasharray=\"4\"");
    let (x, y) = panel.at(knee, panel.y.low);
    put(
        svg,
        format_args!(
            "<text x=\"{}\" y=\"{}\" fill=\"#dc2626\">knee {knee}</text>",
            x + 4.0,
            y - 6.0
        ),
    );
    panel.line(svg, predicted.into_iter(), "stroke=\"#999\"");
    panel.line(svg, points.iter().copied(), "stroke=\"#2563eb\"");
    for (x, y) in points {
        panel.dot(svg, x, y, PROMPT_COLOUR, &format!("{x} at a time: {y:.0} a minute"));
    }
}
