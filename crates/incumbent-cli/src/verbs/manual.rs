//! The pages of the manual, from the one definition of the command line.
//!
//! What `--help` says after the options becomes sections of its own.

use std::io;

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, roman};

use crate::args::EXIT_CODES;

const ENVIRONMENT: &[(&str, &str)] = &[
    ("INCUMBENT_STORE", "The store's URL, if neither --store nor --store-file is given."),
    (
        "INCUMBENT_CLAIMS_DIR",
        "Where claims are kept and read, instead of the usual places: see `incumbent claims --help`.",
    ),
    (
        "PGPASSFILE",
        "The file with passwords for PostgreSQL servers, one in a line as HOST:PORT:DATABASE:USER:PASSWORD, if the URL \
         has none; ~/.pgpass if it is not set. A file that is open to others is passed over.",
    ),
    ("XDG_STATE_HOME, HOME", "Where this user's own store is, if none is named: see FILES."),
    (
        "INCUMBENT_ELECTION, INCUMBENT_NAME, INCUMBENT_TOKEN, INCUMBENT_STORE_ID, INCUMBENT_LAST_TERM",
        "Set by `incumbent run` for COMMAND: the election, this candidate's name, the fencing token of its term, the \
         identity of the store that gave it, and how the last term ended.",
    ),
    ("NOTIFY_SOCKET", "Where `incumbent run` tells a service manager that it is ready and whether it leads."),
    (
        "NO_COLOR, TERM",
        "Output has no colour if NO_COLOR is set, if TERM is dumb or unset, or if it is not a terminal.",
    ),
    (
        "KUBERNETES_SERVICE_HOST, container",
        "Signs of a pod, where this user's own store is refused, and of a container, where using it prints a warning.",
    ),
];

const FILES: &[(&str, &str)] = &[(
    "$XDG_STATE_HOME/incumbent, or ~/.local/state/incumbent",
    "This user's own store on this host. The first candidate creates it, readable by this user only.",
)];

/// One page: of the command, or of a verb. `verbs` are all there are.
pub(super) fn page(command: &Command, verbs: &[String]) -> io::Result<Vec<u8>> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    let version = concat!("incumbent ", env!("CARGO_PKG_VERSION"));
    // It prints what the others say.
    let shown = command.clone().mut_subcommands(|verb| {
        let is_help = verb.get_name() == "help";
        verb.hide(is_help)
    });
    // An empty date would not be there at all, and the source would be taken for it.
    let man = Man::new(shown).title(name.as_str()).date(" ").source(version).manual("Incumbent Manual");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    synopsis(command).to_writer(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    let more = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
    let mut roff = more_sections(&more);
    listed(&mut roff, "ENVIRONMENT", ENVIRONMENT);
    listed(&mut roff, "FILES", FILES);
    if !more.contains(EXIT_CODES_HEADING) {
        roff.extend([more_sections(EXIT_CODES)]);
    }
    see_also(&mut roff, &name, verbs);
    roff.to_writer(&mut page)?;
    Ok(page)
}

const EXIT_CODES_HEADING: &str = "Exit codes:";

fn synopsis(command: &Command) -> Roff {
    let usage = command.clone().render_usage().to_string();
    let usage = usage.strip_prefix("Usage: ").unwrap_or(&usage).trim().to_owned();
    let program = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let rest = usage.strip_prefix(program).unwrap_or(&usage).to_owned();
    let mut roff = Roff::new();
    roff.control("SH", ["SYNOPSIS"]).text([bold(program), roman(rest)]);
    roff
}

/// Each heading, a line after a gap that ends in a colon, begins a section; what is indented stays
/// as it is.
fn more_sections(text: &str) -> Roff {
    let mut roff = Roff::new();
    let mut indented = false;
    let mut after_gap = true;
    for line in text.lines() {
        let is_indented = line.starts_with(' ');
        if is_indented != indented && !line.is_empty() {
            roff.control(if is_indented { "nf" } else { "fi" }, []);
            indented = is_indented;
        }
        match line.strip_suffix(':') {
            Some(heading) if !is_indented && after_gap => {
                let heading =
                    if line == EXIT_CODES_HEADING { "EXIT STATUS".to_owned() } else { heading.to_uppercase() };
                roff.control("SH", [heading.as_str()]);
            }
            _ if line.is_empty() => {}
            _ => {
                roff.text([roman(line)]);
            }
        }
        after_gap = line.is_empty();
    }
    if indented {
        roff.control("fi", []);
    }
    roff
}

fn listed(roff: &mut Roff, heading: &str, entries: &[(&str, &str)]) {
    roff.control("SH", [heading]);
    for (term, meaning) in entries {
        roff.control("TP", []).text([bold(*term)]).text([roman(*meaning)]);
    }
}

fn see_also(roff: &mut Roff, name: &str, verbs: &[String]) {
    let pages = std::iter::once("incumbent".to_owned()).chain(verbs.iter().map(|verb| format!("incumbent-{verb}")));
    let others = pages.filter(|page| page != name).map(|page| (page, "(1)"));
    let words: Vec<Inline> = others
        .chain([("flock".to_owned(), "(1)"), ("systemd.service".to_owned(), "(5)")])
        .enumerate()
        .flat_map(|(place, (page, section))| [roman(if place == 0 { "" } else { ", " }), bold(page), roman(section)])
        .collect();
    roff.control("SH", ["SEE ALSO"]).text(words);
}
