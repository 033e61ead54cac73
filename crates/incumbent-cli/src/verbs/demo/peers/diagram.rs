//! Draws rows as a sequence diagram: a lifeline for each member, arrows between them, time on the left. Plain characters on
//! a grid; it knows nothing of elections.

use std::collections::BTreeMap;
use std::env;

use super::rows::{Drawn, Mood, Note, Row, Turn};
use crate::say::Paint;

/// The narrowest drawing that can be read.
const NARROWEST: usize = 64;
/// The widest that can be followed with the eyes.
const WIDEST: usize = 120;
/// Where the first lifeline is: after the time.
const FIRST: usize = 6;
/// What the last lifeline needs on its right for a note.
const NOTE: usize = 13;

/// Messages of a leader and answers to them, in the order in which they are counted.
const UPKEEP: [&str; 4] = ["heartbeat", "beat", "ack", "heard"];

/// How wide the output may be, and with which characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Page {
    pub(super) width: usize,
    pub(super) glyphs: &'static Glyphs,
}

impl Page {
    /// For standard output: as wide as its terminal, and 80 columns elsewhere.
    pub(super) fn for_stdout() -> Page {
        let told = env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
        let terminal = || rustix::termios::tcgetwinsize(std::io::stdout()).ok().map(|size| usize::from(size.ws_col));
        let width = told.or_else(terminal).filter(|columns| *columns > 0).unwrap_or(80);
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].iter().filter_map(env::var_os).find(|value| !value.is_empty());
        let locale = locale.map(|locale| locale.to_string_lossy().to_lowercase()).unwrap_or_default();
        let utf8 = locale.contains("utf-8") || locale.contains("utf8");
        Page { width: width.clamp(NARROWEST, WIDEST), glyphs: if utf8 { &BOXES } else { &ASCII } }
    }

    /// A text with the characters that there are.
    pub(super) fn spell(&self, text: &str) -> String {
        if self.glyphs == &ASCII { text.replace('µ', "u") } else { text.to_owned() }
    }
}

/// The characters of a drawing.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Glyphs {
    life: char,
    lead: char,
    line: char,
    cross: char,
    cross_lead: char,
    speaks: char,
    right: char,
    left: char,
    lost: char,
    wall: char,
    pub(super) dots: &'static str,
    pub(super) times: char,
    pub(super) done: char,
}

pub(super) const BOXES: Glyphs = Glyphs {
    life: '│',
    lead: '║',
    line: '─',
    cross: '┼',
    cross_lead: '╫',
    speaks: '●',
    right: '▶',
    left: '◀',
    lost: '╳',
    wall: '░',
    dots: "…",
    times: '×',
    done: '✓',
};

pub(super) const ASCII: Glyphs = Glyphs {
    life: '|',
    lead: '#',
    line: '-',
    cross: '+',
    cross_lead: '#',
    speaks: 'o',
    right: '>',
    left: '<',
    lost: 'x',
    wall: ':',
    dots: "...",
    times: 'x',
    done: '*',
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ink {
    Plain,
    Bold,
    Dim,
    Red,
    Green,
    Yellow,
    Cyan,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Absent,
    Follows,
    Leads,
}

/// One act's drawing.
pub(super) struct Diagram {
    page: Page,
    paint: Paint,
    began: u64,
    /// From left to right: who, where, and how it is.
    columns: Vec<Column>,
    /// Where the network is cut, and whether it is now.
    wall: Option<(usize, bool)>,
}

struct Column {
    member: u16,
    title: String,
    x: usize,
    life: Life,
}

/// Who is in a drawing.
pub(super) struct Figure {
    pub(super) member: u16,
    pub(super) title: String,
    pub(super) lives: bool,
    pub(super) leads: bool,
}

impl Diagram {
    /// A drawing of these, from left to right. `island` of them, on the right, are cut off or will be.
    pub(super) fn new(page: Page, paint: Paint, began: u64, figures: Vec<Figure>, island: usize) -> Diagram {
        let (places, wall) = places(page.width, figures.len(), island);
        let columns = figures.into_iter().zip(places).map(|(figure, x)| Column {
            member: figure.member,
            title: figure.title,
            x,
            life: match (figure.lives, figure.leads) {
                (false, _) => Life::Absent,
                (true, false) => Life::Follows,
                (true, true) => Life::Leads,
            },
        });
        Diagram { page, paint, began, columns: columns.collect(), wall: wall.map(|x| (x, false)) }
    }

    /// The network is cut from the beginning.
    pub(super) fn begin_cut(&mut self) {
        self.wall = self.wall.map(|(x, _)| (x, true));
    }

    /// The names above the lifelines.
    pub(super) fn title(&self) -> String {
        let mut canvas = Canvas::new(self.page.width);
        canvas.write(2, "ms", Ink::Dim);
        for column in &self.columns {
            let half = column.title.chars().count() / 2;
            canvas.write(column.x.saturating_sub(half).max(FIRST - 1), &column.title, Ink::Bold);
        }
        canvas.finish(self.paint)
    }

    /// The next row, and what it changes for those below it.
    pub(super) fn row(&mut self, row: &Row) -> String {
        let mut canvas = Canvas::new(self.page.width);
        match &row.what {
            Drawn::Notes(notes) => self.notes(&mut canvas, notes),
            Drawn::Banner { text, whole } => {
                self.wall = self.wall.map(|(x, _)| (x, !whole));
                self.lifelines(&mut canvas);
                self.across(&mut canvas, text, if *whole { Ink::Green } else { Ink::Red });
            }
            Drawn::Folded(counts) => {
                self.lifelines(&mut canvas);
                let Glyphs { dots, times, .. } = self.page.glyphs;
                // What keeps a leader in office comes first.
                let rank = |kind: &str| UPKEEP.iter().position(|known| *known == kind).unwrap_or(UPKEEP.len());
                let mut counts: Vec<_> = counts.iter().collect();
                counts.sort_by_key(|(kind, _)| rank(kind));
                let parts: Vec<_> = counts.iter().map(|(kind, count)| format!("{count} {times} {kind}")).collect();
                self.across(&mut canvas, &format!("{dots} {} {dots}", parts.join(", ")), Ink::Dim);
                return canvas.finish(self.paint);
            }
            Drawn::Broadcast { from, to, label, mood } => {
                self.lifelines(&mut canvas);
                self.broadcast(&mut canvas, *from, to, label, *mood);
            }
            Drawn::Gather { from, to, label, mood } => {
                self.lifelines(&mut canvas);
                let from: Vec<usize> = from.iter().filter_map(|member| self.x(*member)).collect();
                if let Some(to) = self.x(*to) {
                    self.gather(&mut canvas, &from, to, label, *mood);
                }
            }
        }
        let ms = row.at.saturating_sub(self.began) / 1_000_000;
        canvas.write(0, &format!("{ms:>5}"), Ink::Dim);
        canvas.finish(self.paint)
    }

    fn x(&self, member: u16) -> Option<usize> {
        self.columns.iter().find(|column| column.member == member).map(|column| column.x)
    }

    fn lifelines(&self, canvas: &mut Canvas) {
        let glyphs = self.page.glyphs;
        for column in &self.columns {
            match column.life {
                Life::Absent => {}
                Life::Follows => canvas.put(column.x, glyphs.life, Ink::Dim),
                Life::Leads => canvas.put(column.x, glyphs.lead, Ink::Green),
            }
        }
        if let Some((x, true)) = self.wall {
            canvas.put(x, glyphs.wall, Ink::Red);
        }
    }

    fn notes(&mut self, canvas: &mut Canvas, notes: &BTreeMap<u16, Note>) {
        for column in &mut self.columns {
            match notes.get(&column.member).map(|note| note.turn) {
                Some(Turn::Begins | Turn::Follows) => column.life = Life::Follows,
                Some(Turn::Leads) => column.life = Life::Leads,
                Some(Turn::Ends) => column.life = Life::Absent,
                Some(Turn::Nothing) | None => {}
            }
        }
        self.lifelines(canvas);
        for (place, column) in self.columns.iter().enumerate() {
            let Some(note) = notes.get(&column.member) else { continue };
            let room = match self.columns.get(place + 1) {
                Some(next) => match self.wall {
                    Some((wall, true)) if wall > column.x => wall.min(next.x),
                    _ => next.x,
                },
                None => self.page.width + 1,
            };
            let ink = match note.turn {
                Turn::Ends => Ink::Red,
                Turn::Leads => Ink::Green,
                Turn::Follows => Ink::Yellow,
                Turn::Begins | Turn::Nothing => Ink::Plain,
            };
            if note.turn == Turn::Ends {
                canvas.put(column.x, self.page.glyphs.lost, Ink::Red);
            }
            canvas.write(column.x + 2, &fit(&note.text, room.saturating_sub(column.x + 3)), ink);
        }
    }

    /// Text over all lifelines.
    fn across(&self, canvas: &mut Canvas, text: &str, ink: Ink) {
        let (Some(first), Some(last)) = (self.columns.first(), self.columns.last()) else { return };
        let text = fit(text, self.page.width - first.x - 2);
        let length = text.chars().count();
        // In the middle, or on one side of a cut, but never over the first lifeline, so that there is something to hold on to.
        let end = self.wall.filter(|(x, cut)| *cut && first.x + length + 4 <= *x).map_or(last.x, |(x, _)| x);
        let x = ((first.x + end + 1).saturating_sub(length) / 2).max(first.x + 2);
        canvas.write(x - 1, &format!(" {text} "), ink);
    }

    fn broadcast(&self, canvas: &mut Canvas, from: u16, to: &BTreeMap<u16, bool>, label: &str, mood: Mood) {
        let Some(start) = self.x(from) else { return };
        let ink = ink(mood);
        let mut sides = Vec::new();
        for rightwards in [false, true] {
            let targets = self.columns.iter().filter(|column| column.x != start && (column.x > start) == rightwards);
            let targets: Vec<_> =
                targets.filter_map(|column| to.get(&column.member).map(|arrived| (column, *arrived))).collect();
            if let Some(end) = self.arrow(canvas, start, &targets, rightwards, ink) {
                sides.push((rightwards, self.room(start, end, rightwards)));
            }
        }
        canvas.put(start, self.page.glyphs.speaks, ink);
        self.label(canvas, start, 1, &sides, label, ink);
    }

    /// One side of a broadcast. Answers with where it ends.
    fn arrow(
        &self,
        canvas: &mut Canvas,
        start: usize,
        targets: &[(&Column, bool)],
        rightwards: bool,
        ink: Ink,
    ) -> Option<usize> {
        let glyphs = self.page.glyphs;
        // What is lost in a cut ends there.
        let wall = self.wall.filter(|(x, cut)| *cut && (*x > start) == rightwards).map(|(x, _)| x);
        let in_cut =
            |(column, arrived): &(&Column, bool)| !arrived && wall.is_some_and(|wall| (column.x > wall) == rightwards);
        let ends = targets.iter().map(|target| if in_cut(target) { wall.unwrap_or(start) } else { target.0.x });
        let end = if rightwards { ends.max() } else { ends.min() }?;
        self.stroke(canvas, start, end, ink);
        for target in targets {
            let (column, arrived) = target;
            let before = if rightwards { column.x - 1 } else { column.x + 1 };
            match (arrived, column.life) {
                (true, _) => canvas.put(before, if rightwards { glyphs.right } else { glyphs.left }, ink),
                (false, _) if in_cut(target) => canvas.put(wall.unwrap_or(start), glyphs.lost, Ink::Red),
                (false, Life::Absent) => canvas.put(column.x, glyphs.lost, Ink::Red),
                (false, _) => canvas.put(before, glyphs.lost, Ink::Red),
            }
        }
        Some(end)
    }

    fn gather(&self, canvas: &mut Canvas, from: &[usize], to: usize, label: &str, mood: Mood) {
        let (glyphs, ink) = (self.page.glyphs, ink(mood));
        let mut sides = Vec::new();
        for rightwards in [false, true] {
            let side = from.iter().copied().filter(|x| if rightwards { *x > to } else { *x < to });
            let Some(end) = (if rightwards { side.max() } else { side.min() }) else { continue };
            self.stroke(canvas, to, end, ink);
            canvas.put(end, glyphs.speaks, ink);
            let (head, x) = if rightwards { (glyphs.left, to + 1) } else { (glyphs.right, to - 1) };
            canvas.put(x, head, ink);
            sides.push((rightwards, self.room(to, end, rightwards)));
        }
        from.iter().for_each(|x| canvas.put(*x, glyphs.speaks, ink));
        // Beyond the arrow's head.
        self.label(canvas, to, 2, &sides, label, ink);
    }

    /// A line from one place to another, over the lifelines between.
    fn stroke(&self, canvas: &mut Canvas, start: usize, end: usize, ink: Ink) {
        let glyphs = self.page.glyphs;
        for x in start.min(end) + 1..start.max(end) {
            let glyph = match self.columns.iter().find(|column| column.x == x).map(|column| column.life) {
                Some(Life::Follows) => glyphs.cross,
                Some(Life::Leads) => glyphs.cross_lead,
                Some(Life::Absent) | None => glyphs.line,
            };
            canvas.put(x, glyph, ink);
        }
    }

    /// How many characters fit beside `start` on an arrow to `end`.
    fn room(&self, start: usize, end: usize, rightwards: bool) -> usize {
        let stops =
            self.columns.iter().filter(|column| column.life != Life::Absent).map(|column| column.x).chain([end]);
        let distance =
            stops.filter(|x| if rightwards { *x > start } else { *x < start }).map(|x| x.abs_diff(start)).min();
        // One for the head.
        distance.unwrap_or(0).saturating_sub(2)
    }

    /// Writes on the arrow, on the side where there is more room, beside `start`; or next to it if there is none.
    fn label(&self, canvas: &mut Canvas, start: usize, off: usize, sides: &[(bool, usize)], label: &str, ink: Ink) {
        let length = label.chars().count();
        let right = sides.iter().find(|(rightwards, room)| *rightwards && *room >= length);
        let best = right.or_else(|| sides.iter().max_by_key(|(_, room)| *room));
        let Some((rightwards, room)) = best else { return };
        if *room < 5 {
            return canvas.write(start + 2, label, ink);
        }
        let text = fit(label, *room);
        let length = text.chars().count();
        let gap = usize::from(length < *room);
        let x = if *rightwards { start + off + gap } else { start + 1 - off - gap - length };
        canvas.write(x, &text, ink);
    }
}

/// Where lifelines are, and where the network is cut.
fn places(width: usize, count: usize, island: usize) -> (Vec<usize>, Option<usize>) {
    let span = width.saturating_sub(FIRST + NOTE + 1);
    let gaps = count.saturating_sub(1).max(1);
    let even = (span / gaps).min(26);
    if island == 0 || island >= count {
        return ((0..count).map(|place| FIRST + place * even).collect(), None);
    }
    let step = even.min((span.saturating_sub(30) / (gaps - 1).max(1)).max(15));
    let wide = (span - step * (gaps - 1)).min(34);
    let shore = count - island;
    let x = |place: usize| FIRST + place * step + if place >= shore { wide - step } else { 0 };
    let middle = x(shore - 1) + wide / 2;
    let wall = if wide >= 26 { middle } else { x(shore) - 3 };
    ((0..count).map(x).collect(), Some(wall))
}

fn ink(mood: Mood) -> Ink {
    match mood {
        Mood::Asks => Ink::Yellow,
        Mood::Answers => Ink::Cyan,
        Mood::Leads => Ink::Green,
    }
}

/// As much of a text as fits: an abbreviation if there is one, or else whole words.
fn fit(text: &str, room: usize) -> String {
    if text.chars().count() <= room {
        return text.to_owned();
    }
    let short = text.replace("election", "elect.").replace("leads term", "leads").replace("coordinator", "coord.");
    let cut: String = short.chars().take(room).collect();
    match (short.chars().nth(room), cut.rfind(' ')) {
        (Some(next), Some(words)) if next != ' ' => cut[..words].to_owned(),
        _ => cut,
    }
}

/// One line of characters, each with its colour.
struct Canvas(Vec<(char, Ink)>);

impl Canvas {
    fn new(width: usize) -> Canvas {
        Canvas(vec![(' ', Ink::Plain); width])
    }

    fn put(&mut self, x: usize, glyph: char, ink: Ink) {
        if let Some(cell) = self.0.get_mut(x) {
            *cell = (glyph, ink);
        }
    }

    fn write(&mut self, x: usize, text: &str, ink: Ink) {
        text.chars().enumerate().for_each(|(place, glyph)| self.put(x + place, glyph, ink));
    }

    fn finish(&self, paint: Paint) -> String {
        let drawn = self.0.iter().rposition(|(glyph, _)| *glyph != ' ').map_or(0, |last| last + 1);
        let runs = self.0[..drawn].chunk_by(|one, two| one.1 == two.1);
        runs.map(|run| {
            let text: String = run.iter().map(|(glyph, _)| *glyph).collect();
            match run[0].1 {
                Ink::Plain => text,
                Ink::Bold => paint.bold(&text),
                Ink::Dim => paint.dim(&text),
                Ink::Red => paint.red(&text),
                Ink::Green => paint.green(&text),
                Ink::Yellow => paint.yellow(&text),
                Ink::Cyan => paint.cyan(&text),
            }
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Nothing is a terminal here.
    fn diagram(glyphs: &'static Glyphs, width: usize, count: u16, island: usize) -> Diagram {
        let figures = (1..=count).map(|member| Figure {
            member,
            title: ["ada", "bob", "cyd", "dan", "eve"][usize::from(member) - 1].to_owned(),
            lives: true,
            leads: member == count,
        });
        let file = std::fs::File::open("/dev/null").unwrap();
        Diagram::new(Page { width, glyphs }, Paint::for_stream(&file), 0, figures.collect(), island)
    }

    fn row(ms: u64, what: Drawn) -> Row {
        Row { at: ms * 1_000_000, what }
    }

    fn broadcast(from: u16, to: &[(u16, bool)], label: &str) -> Drawn {
        Drawn::Broadcast { from, to: to.iter().copied().collect(), label: label.to_owned(), mood: Mood::Asks }
    }

    fn note(member: u16, text: &str, turn: Turn) -> Drawn {
        Drawn::Notes(BTreeMap::from([(member, Note { text: text.to_owned(), turn })]))
    }

    #[test]
    fn arrows_go_from_who_speaks_to_all_who_hear() {
        let mut diagram = diagram(&BOXES, 60, 3, 0);
        assert_eq!(diagram.title(), "  ms ada                 bob                 cyd");
        assert_eq!(
            diagram.row(&row(7, broadcast(2, &[(1, true), (3, true)], "vote 1"))),
            "    7 │◀──────────────────●─vote 1───────────▶║"
        );
        let (from, label) = (BTreeSet::from([1, 3]), "voted yes 1".to_owned());
        assert_eq!(
            diagram.row(&row(12, Drawn::Gather { from, to: 2, label, mood: Mood::Answers })),
            "   12 ●──────────────────▶│◀─voted yes 1──────●"
        );
        assert_eq!(
            diagram.row(&row(13, broadcast(1, &[(3, true)], "alive"))),
            "   13 ●─alive─────────────┼──────────────────▶║"
        );
    }

    #[test]
    fn a_dead_lifeline_breaks_off_and_what_is_sent_there_is_lost() {
        let mut diagram = diagram(&BOXES, 60, 3, 0);
        assert_eq!(
            diagram.row(&row(0, note(3, "killed", Turn::Ends))),
            "    0 │                   │                   ╳ killed"
        );
        assert_eq!(
            diagram.row(&row(1, broadcast(1, &[(2, true), (3, false)], "beat"))),
            "    1 ●─beat─────────────▶┼───────────────────╳"
        );
        assert_eq!(diagram.row(&row(2, note(2, "leads", Turn::Leads))), "    2 │                   ║ leads");
    }

    #[test]
    fn an_arrow_ends_where_the_network_is_cut() {
        let mut diagram = diagram(&BOXES, 69, 3, 1);
        let cut = Drawn::Banner { text: "the network is cut", whole: false };
        assert_eq!(diagram.row(&row(0, cut)), "    0 │       the network is cut        ░              ║");
        assert_eq!(
            diagram.row(&row(1, broadcast(3, &[(1, false), (2, false)], "beat"))),
            "    1 │                  │              ╳─────────beat─●"
        );
        let whole = Drawn::Banner { text: "whole", whole: true };
        assert!(!diagram.row(&row(2, whole)).contains(BOXES.wall));
        assert_eq!(
            diagram.row(&row(3, broadcast(3, &[(1, true), (2, true)], "beat"))),
            "    3 │◀─────────────────┼◀───────────────────────beat─●"
        );
    }

    #[test]
    fn what_does_not_fit_is_shortened_at_a_word() {
        assert_eq!(fit("follows ada", 11), "follows ada");
        assert_eq!(fit("follows ada", 9), "follows");
        assert_eq!(fit("heartbeat 3", 9), "heartbeat");
        assert_eq!(fit("election 34512", 13), "elect. 34512");
        assert_eq!(fit("timeout-now 3", 8), "timeout-");
    }

    #[test]
    fn five_lifelines_and_their_notes_fit_eighty_columns_in_plain_ascii() {
        let mut diagram = diagram(&ASCII, 80, 5, 2);
        let all = [(1, true), (2, true), (3, true), (4, false)];
        let counts = BTreeMap::from([("heartbeat".to_owned(), 1_000_000), ("pre-voted".to_owned(), 1_000_000)]);
        let rows = [
            Drawn::Banner { text: "the network is cut", whole: false },
            broadcast(5, &all, "a label that is longer than any room for it"),
            broadcast(4, &[(1, false)], "pre-vote 123456"),
            note(5, "leads term 12345678901234567890", Turn::Leads),
            Drawn::Folded(counts),
        ];
        for what in rows {
            let line = diagram.row(&row(123, what));
            assert!(line.is_ascii() && line.chars().count() <= 80, "{line}");
        }
    }
}
