//! A bar chart as SVG: pairs of bars on a logarithmic axis, since what is compared differs by factors.

use std::fmt::Write as _;

/// A chart of several comparisons.
#[derive(Clone, Debug)]
pub struct Plot {
    title: String,
    names: [String; 2],
    bars: Vec<(String, [f64; 2])>,
}

const LEFT: f64 = 300.0;
const WIDTH: f64 = 420.0;
const ROW: f64 = 46.0;
const TOP: f64 = 62.0;

impl Plot {
    /// A chart that compares the first with the second.
    pub fn new(title: &str, names: [&str; 2]) -> Plot {
        Plot { title: title.to_owned(), names: names.map(str::to_owned), bars: Vec::new() }
    }

    /// Adds a comparison. Values of zero or less have no place on the axis and are left out.
    pub fn pair(&mut self, label: impl Into<String>, values: [f64; 2]) {
        if values.iter().all(|value| *value > 0.0) {
            self.bars.push((label.into(), values));
        }
    }

    /// The chart: each pair is drawn relative to its own larger value, over three powers of ten.
    pub fn render(&self) -> String {
        let height = TOP + ROW * self.bars.len() as f64 + 12.0;
        let total = LEFT + WIDTH + 120.0;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {total} {height}\" font-family=\"sans-serif\" \
             font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
             <text x=\"12\" y=\"24\" font-size=\"16\">{}</text>\n",
            escape(&self.title)
        );
        let colours = ["#1b6ca8", "#c9a227"];
        for (number, name) in self.names.iter().enumerate() {
            let x = LEFT + 130.0 * number as f64;
            let colour = colours[number];
            let _ = writeln!(svg, "<rect x=\"{x}\" y=\"36\" width=\"12\" height=\"12\" fill=\"{colour}\"/>");
            let _ = writeln!(svg, "<text x=\"{}\" y=\"47\">{}</text>", x + 18.0, escape(name));
        }
        for (number, (label, values)) in self.bars.iter().enumerate() {
            let y = TOP + ROW * number as f64;
            let _ = writeln!(svg, "<text x=\"12\" y=\"{}\">{}</text>", y + 24.0, escape(label));
            let largest = values[0].max(values[1]);
            for (bar, value) in values.iter().enumerate() {
                let width = WIDTH * (1.0 + (value / largest).log10() / 3.0).max(0.005);
                let (top, colour) = (y + 4.0 + 17.0 * bar as f64, colours[bar]);
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
    fn a_pair_is_drawn_relative_to_its_larger_value() {
        let mut plot = Plot::new("a < b", ["ours", "theirs"]);
        plot.pair("handover, ms", [1.0, 1000.0]);
        plot.pair("nothing", [0.0, 1.0]);
        let svg = plot.render();
        assert!(svg.contains("a &lt; b") && svg.contains("handover, ms") && !svg.contains("nothing"));
        assert!(svg.contains("width=\"420.0\"") && svg.contains("width=\"2.1\""), "{svg}");
    }
}
