//! A bar chart as SVG: groups of bars on a logarithmic axis, since what is compared differs by
//! factors.

use std::fmt::Write as _;

/// A chart of several comparisons, of so many at a time.
#[derive(Clone, Debug)]
pub struct Plot<const COUNT: usize = 2> {
    title: String,
    names: [String; COUNT],
    bars: Vec<(String, [f64; COUNT])>,
}

const LEFT: f64 = 300.0;
const WIDTH: f64 = 420.0;
const BAR: f64 = 17.0;
/// Between two groups of bars.
const GAP: f64 = 12.0;
const TOP: f64 = 62.0;
const NAME: f64 = 130.0;

impl Plot {
    /// Adds a comparison of two.
    pub fn pair(&mut self, label: impl Into<String>, values: [f64; 2]) {
        self.group(label, values);
    }
}

impl<const COUNT: usize> Plot<COUNT> {
    const ROW: f64 = GAP + BAR * COUNT as f64;

    /// A chart that compares the first with the others.
    pub fn new(title: &str, names: [&str; COUNT]) -> Plot<COUNT> {
        Plot { title: title.to_owned(), names: names.map(str::to_owned), bars: Vec::new() }
    }

    /// Adds a comparison. Values of zero or less have no place on the axis and are left out.
    pub fn group(&mut self, label: impl Into<String>, values: [f64; COUNT]) {
        if values.iter().all(|value| *value > 0.0) {
            self.bars.push((label.into(), values));
        }
    }

    /// The chart: each group is drawn relative to its own largest value, over three powers of ten.
    pub fn render(&self) -> String {
        let height = TOP + Self::ROW * self.bars.len() as f64 + 12.0;
        let total = LEFT + WIDTH + 120.0;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {total} {height}\" font-family=\"sans-serif\" \
             font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
             <text x=\"12\" y=\"24\" font-size=\"16\">{}</text>\n",
            escape(&self.title)
        );
        let colours = ["#1b6ca8", "#c9a227", "#7a5195", "#4b8b3b", "#b5443c"].into_iter().cycle();
        // More names than there is room for above the bars begin further to the left.
        let names = LEFT.min(total - NAME * COUNT as f64);
        for ((number, name), colour) in self.names.iter().enumerate().zip(colours.clone()) {
            let x = names + NAME * number as f64;
            let _ = writeln!(svg, "<rect x=\"{x}\" y=\"36\" width=\"12\" height=\"12\" fill=\"{colour}\"/>");
            let _ = writeln!(svg, "<text x=\"{}\" y=\"47\">{}</text>", x + 18.0, escape(name));
        }
        for (number, (label, values)) in self.bars.iter().enumerate() {
            let y = TOP + Self::ROW * number as f64;
            let _ = writeln!(svg, "<text x=\"12\" y=\"{}\">{}</text>", y + 1.0 + Self::ROW / 2.0, escape(label));
            let largest = values.iter().copied().fold(0.0, f64::max);
            for ((bar, value), colour) in values.iter().enumerate().zip(colours.clone()) {
                let width = WIDTH * (1.0 + (value / largest).log10() / 3.0).max(0.005);
                let top = y + 4.0 + BAR * bar as f64;
                let _ = writeln!(
                    svg,
                    "<rect x=\"{LEFT}\" y=\"{top}\" width=\"{width:.1}\" height=\"15\" fill=\"{colour}\"/>\
                     <text x=\"{:.1}\" y=\"{}\">{}</text>",
                    LEFT + width + 6.0,
                    top + 12.0,
                    short(*value)
                );
            }
        }
        svg.push_str("</svg>\n");
        svg
    }
}

fn short(value: f64) -> String {
    if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comparison_is_drawn_relative_to_its_largest_value() {
        let mut plot = Plot::new("a < b", ["ours", "theirs", "others"]);
        plot.group("handover, ms", [1.0, 1000.0, 100.0]);
        plot.group("nothing", [0.0, 1.0, 1.0]);
        let svg = plot.render();
        assert!(svg.contains("a &lt; b") && svg.contains("handover, ms") && !svg.contains("nothing"));
        for width in ["2.1", "420.0", "280.0"] {
            assert!(svg.contains(&format!("width=\"{width}\"")), "{svg}");
        }
    }
}
