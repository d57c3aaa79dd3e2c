//! Sizes of subsets as one SVG that needs nothing else: a panel of bars for each figure, a bar for each
//! size, a whisker for its interval of confidence.

use std::fmt::Write as _;

use cleave_sim::results::Interval;

use super::subsets::{Figures, Row};
use super::table::digits;

const WIDE: f64 = 250.0;
const HIGH: f64 = 190.0;
const GAP: f64 = 34.0;
const TOP: f64 = 64.0;
const BOTTOM: f64 = 44.0;
const CALM: &str = "#2563eb";
const HARMED: &str = "#d97706";

/// A figure and the colour it has.
type Bar = (Interval, &'static str);

/// One panel: a figure of every row, as a share or as it is.
struct SubsetsPanel {
    title: &'static str,
    is_share: bool,
    bars: Vec<Vec<Bar>>,
}

pub(super) fn draw(rows: &[Row], title: &str) -> String {
    let panels = panels(rows);
    let width = GAP + f64::from(u32::try_from(panels.len()).unwrap_or(1)) * (WIDE + GAP);
    let height = TOP + HIGH + BOTTOM;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{GAP}\" y=\"22\" font-size=\"14\">Fewest replicas of a workload: {title}</text>\n\
         <text x=\"{}\" y=\"22\" text-anchor=\"end\"><tspan fill=\"{CALM}\">■ calm</tspan> \
         <tspan fill=\"{HARMED}\">■ while a tenant does harm</tspan></text>\n",
        width - GAP,
    );
    let mut left = GAP;
    for panel in &panels {
        panel.draw(&mut svg, left, rows);
        left += WIDE + GAP;
    }
    svg.push_str("</svg>\n");
    svg
}

fn panels(rows: &[Row]) -> Vec<SubsetsPanel> {
    let each = |bars: fn(&Row) -> Vec<Option<Bar>>| {
        rows.iter().map(|it| bars(it).into_iter().flatten().collect()).collect()
    };
    vec![
        SubsetsPanel {
            title: "first token, p99, seconds",
            is_share: false,
            bars: each(|it| {
                let it = Figures::of(&it.summary);
                vec![Some((it.p99_s, CALM)), it.p99_harmed_s.map(|it| (it, HARMED))]
            }),
        },
        SubsetsPanel {
            title: "good requests lost to the harm",
            is_share: true,
            bars: each(|it| vec![it.summary.blast_radius.map(|it| (it, HARMED))]),
        },
        SubsetsPanel {
            title: "replicas the harm reached",
            is_share: false,
            bars: each(|it| vec![it.summary.reached.map(|it| (it, HARMED))]),
        },
        SubsetsPanel {
            title: "prompt tokens found in the cache",
            is_share: true,
            bars: each(|it| vec![Some((Figures::of(&it.summary).hit, CALM))]),
        },
    ]
}

impl SubsetsPanel {
    fn draw(&self, svg: &mut String, left: f64, rows: &[Row]) {
        let bars = || self.bars.iter().flatten();
        let most = bars().map(|(it, _)| it.mean + it.half_width.unwrap_or(0.0)).fold(0.0, f64::max);
        let top = if 0.0 < most { most } else { 1.0 };
        let bottom = TOP + HIGH;
        let y = |value: f64| bottom - HIGH * (value / top).clamp(0.0, 1.0);
        put(svg, &format!("<text x=\"{left}\" y=\"{}\">{}</text>", TOP - 14.0, self.title));
        put(svg, &line(left, bottom, left + WIDE, bottom, "#999"));
        let step = WIDE / f64::from(u32::try_from(rows.len().max(1)).unwrap_or(1));
        let mut middle = left + step / 2.0;
        for (row, bars) in rows.iter().zip(&self.bars) {
            let count = f64::from(u32::try_from(bars.len().max(1)).unwrap_or(1));
            let wide = step * 0.7 / count;
            let mut x = middle - step * 0.35;
            for (it, colour) in bars {
                let (at, centre) = (y(it.mean), x + wide / 2.0);
                let tall = bottom - at;
                put(
                    svg,
                    &format!(
                        "<rect x=\"{x:.1}\" y=\"{at:.1}\" width=\"{wide:.1}\" height=\"{tall:.1}\" \
                         fill=\"{colour}\"><title>{}</title></rect>",
                        self.label(it.mean)
                    ),
                );
                if let Some(half) = it.half_width {
                    let (low, high) = (y((it.mean - half).max(0.0)), y(it.mean + half));
                    put(svg, &line(centre, low, centre, high, "#333"));
                }
                x += wide;
            }
            let figure = bars.last().map(|(it, _)| self.label(it.mean)).unwrap_or_default();
            let centred = |text: &str, y: f64, size: u32| {
                format!(
                    "<text x=\"{middle:.1}\" y=\"{y}\" text-anchor=\"middle\" font-size=\"{size}\">{text}</text>"
                )
            };
            put(svg, &centred(&row.floor, bottom + 16.0, 12));
            put(svg, &centred(&figure, bottom + 32.0, 10));
            middle += step;
        }
    }

    fn label(&self, value: f64) -> String {
        if self.is_share { format!("{:.1}%", value * 100.0) } else { digits(value) }
    }
}

fn line(x1: f64, y1: f64, x2: f64, y2: f64, colour: &str) -> String {
    format!(
        "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{colour}\"/>"
    )
}

fn put(svg: &mut String, words: &str) {
    writeln!(svg, "{words}").expect("a string takes everything");
}
