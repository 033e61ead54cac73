//! What is printed: messages for people on standard error, results on standard output. Colour only
//! on a terminal.

use std::env;
use std::io::{self, IsTerminal, Write};

use serde::Serialize;

use crate::failure::{Code, Failure};

/// Puts colour on words, or does not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paint {
    on: bool,
}

impl Paint {
    /// For what goes to this stream.
    pub(crate) fn for_stream(stream: &impl IsTerminal) -> Paint {
        let unwanted = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = env::var_os("TERM").is_none_or(|term| term == "dumb");
        Paint { on: stream.is_terminal() && !unwanted && !dumb }
    }

    fn with(self, code: &str, text: &str) -> String {
        if self.on { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    pub(crate) fn bold(self, text: &str) -> String {
        self.with("1", text)
    }

    pub(crate) fn dim(self, text: &str) -> String {
        self.with("2", text)
    }

    pub(crate) fn red(self, text: &str) -> String {
        self.with("31", text)
    }

    pub(crate) fn green(self, text: &str) -> String {
        self.with("32", text)
    }

    pub(crate) fn yellow(self, text: &str) -> String {
        self.with("33", text)
    }

    pub(crate) fn cyan(self, text: &str) -> String {
        self.with("36", text)
    }

    /// A line of a page: its label, `width` wide, and its text.
    pub(crate) fn row(self, width: usize, label: &str, text: &str) -> String {
        format!("{} {text}", self.dim(&format!("{label:width$}")))
    }
}

/// Writes messages for people to standard error, without the secrets that it was told.
#[derive(Clone, Debug)]
pub(crate) struct Console {
    quiet: bool,
    paint: Paint,
    secrets: Vec<Secret>,
}

/// What must not be printed.
#[derive(Clone, Debug)]
struct Secret {
    text: String,
    /// It says something only where passwords stand: it is so short, or so common, that it is a
    /// part of other words, and hiding it there would show what it is.
    only_in_place: bool,
}

/// Shorter passwords are parts of ordinary words.
const SHORTEST_ANYWHERE: usize = 4;

impl Secret {
    fn hidden(&self, text: &str) -> String {
        let mut hidden = String::with_capacity(text.len());
        let mut rest = 0;
        for (at, secret) in text.match_indices(&self.text) {
            let (before, after) = (text[..at].chars().next_back(), text[at + secret.len()..].chars().next());
            if !self.only_in_place || is_place_of_secret(before, after) {
                hidden.push_str(&text[rest..at]);
                hidden.push_str("***");
                rest = at + secret.len();
            }
        }
        hidden.push_str(&text[rest..]);
        hidden
    }
}

/// As in `user:SECRET@host`, `password=SECRET` and `"SECRET"`.
fn is_place_of_secret(before: Option<char>, after: Option<char>) -> bool {
    match before {
        Some(':') => after == Some('@'),
        Some('=') => !after.is_some_and(char::is_alphanumeric),
        Some('"' | '\'' | '`') => after == before,
        _ => false,
    }
}

impl Console {
    pub(crate) fn new(quiet: bool) -> Console {
        Console { quiet, paint: Paint::for_stream(&io::stderr()), secrets: Vec::new() }
    }

    /// These words are never printed, whatever a library puts into its errors. What is `public` may
    /// be: a user whose password is its name.
    pub(crate) fn keep_secret(&mut self, secrets: impl IntoIterator<Item = String>, public: &str) {
        let secrets = secrets.into_iter().filter(|secret| !secret.is_empty());
        self.secrets.extend(secrets.map(|text| {
            let only_in_place = text.chars().count() < SHORTEST_ANYWHERE || public.contains(&text);
            Secret { text, only_in_place }
        }));
        // A longer one may contain a shorter one.
        self.secrets.sort_by_key(|secret| std::cmp::Reverse(secret.text.len()));
    }

    /// What is worth knowing; with --quiet, nothing.
    pub(crate) fn note(&self, text: impl AsRef<str>) {
        if !self.quiet {
            self.line(&self.paint.dim("incumbent:"), text.as_ref());
        }
    }

    /// What is worth knowing and may be bad.
    pub(crate) fn warn(&self, text: impl AsRef<str>) {
        if !self.quiet {
            self.line(&self.paint.yellow("incumbent: warning:"), text.as_ref());
        }
    }

    /// What ends the command.
    pub(crate) fn failure(&self, failure: &Failure) {
        if failure.code == Code::ReaderGone {
            return;
        }
        self.line(&self.paint.red("incumbent:"), &failure.to_string());
    }

    fn line(&self, who: &str, text: &str) {
        // A standard error that is closed is no failure.
        let _ = writeln!(io::stderr().lock(), "{who} {}", printable(&self.redacted(text)));
    }

    /// The text without the secrets.
    pub(crate) fn redacted(&self, text: &str) -> String {
        self.secrets.iter().fold(text.to_owned(), |text, secret| secret.hidden(&text))
    }
}

/// Escapes control characters, which could move the cursor of a terminal, and those that change the
/// direction of writing: names and values come from others.
pub(crate) fn printable(text: &str) -> String {
    let is_harmful = |c: char| {
        let turns =
            matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        let breaks = matches!(c, '\u{2028}' | '\u{2029}');
        c.is_control() || turns || breaks
    };
    text.chars().map(|c| if is_harmful(c) { c.escape_default().to_string() } else { c.to_string() }).collect()
}

/// A line for each row, with cells that line up two spaces apart. What comes last is as long as it
/// is.
pub(crate) fn lined_up<const CELLS: usize>(rows: &[[String; CELLS]]) -> Vec<String> {
    let widths: [usize; CELLS] = std::array::from_fn(|column| widest(rows.iter().map(|row| &row[column])));
    let line = |row: &[String; CELLS]| {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths).take(CELLS - 1) {
            line.push_str(&format!("{cell:width$}  "));
        }
        line + &row[CELLS - 1]
    };
    rows.iter().map(line).collect()
}

/// How many characters the longest of these has.
pub(crate) fn widest<'a>(cells: impl IntoIterator<Item = &'a String>) -> usize {
    cells.into_iter().map(|cell| cell.chars().count()).max().unwrap_or(0)
}

/// As it can be pasted into a shell.
pub(crate) fn shell_word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/-_.:@%+,=".contains(c);
    if text.chars().all(plain) && !text.is_empty() {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

/// One line on standard output, flushed. It fails when the reader has gone.
pub(crate) fn out(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{text}").and_then(|()| stdout.flush()).map_err(cannot_write)
}

/// The same of what its exit code says, too: a reader that has gone changes nothing of that.
pub(crate) fn said(text: Result<(), Failure>) -> Result<(), Failure> {
    text.or_else(|failure| if failure.code == Code::ReaderGone { Ok(()) } else { Err(failure) })
}

pub(crate) fn out_lines(lines: &[String]) -> Result<(), Failure> {
    lines.iter().try_for_each(|line| out(line))
}

/// One JSON object on a line of its own, at once.
pub(crate) fn out_json(value: &impl Serialize) -> Result<(), Failure> {
    out(&json_text(value)?)
}

/// One JSON object.
pub(crate) fn json_text(value: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string(value).map_err(|error| Failure::error(error.to_string()))
}

pub(crate) fn cannot_write(error: io::Error) -> Failure {
    let code = if error.kind() == io::ErrorKind::BrokenPipe { Code::ReaderGone } else { Code::Error };
    Failure::new(code, format!("cannot write to standard output: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_said_even_if_an_error_quotes_it() {
        let mut console = Console::new(false);
        console.keep_secret(["hunter2".into(), "redis://u:hunter2@h".into(), String::new()], "redis://u:***@h");
        assert_eq!(
            console.redacted("cannot reach redis://u:hunter2@h: bad password hunter2"),
            "cannot reach ***: bad password ***"
        );
    }

    #[test]
    fn a_secret_that_is_part_of_other_words_is_hidden_where_secrets_stand() {
        let mut console = Console::new(false);
        console.keep_secret(["e".into()], "redis://u:***@h");
        let said = r#"the store redis://u:e@h?auth=e refuses the password "e": e=e, see there"#;
        let shown = r#"the store redis://u:***@h?auth=*** refuses the password "***": e=***, see there"#;
        assert_eq!(console.redacted(said), shown);

        let mut console = Console::new(false);
        console.keep_secret(["postgres".into()], "postgres://postgres:***@h/postgres");
        let said = "postgres://postgres:postgres@h/postgres does not let postgres in";
        assert_eq!(console.redacted(said), "postgres://postgres:***@h/postgres does not let postgres in");
    }

    #[test]
    fn what_others_wrote_cannot_move_the_cursor() {
        assert_eq!(printable("node\x1b[2J\n"), "node\\u{1b}[2J\\n");
        assert_eq!(printable("Zürich"), "Zürich");
        assert_eq!(printable("a\u{202e}b\u{2066}c\u{200f}d\u{2029}e"), "a\\u{202e}b\\u{2066}c\\u{200f}d\\u{2029}e");
        assert_eq!(printable("שלום"), "שלום");
    }
}
