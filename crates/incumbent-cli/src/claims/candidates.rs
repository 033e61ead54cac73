//! Where the candidates that run on this host keep their claims. A service with a `/run` or `/tmp`
//! of its own, and one in a container, keeps them where nobody else would look.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use incumbent::store::Process;

use super::directories::directory_of;

/// The name of the program, and the verbs of those who claim an office.
const PROGRAM: &str = "incumbent";
const VERBS: [&[u8]; 2] = [b"run", b"campaign"];

/// What is looked at of the arguments and variables of a process.
const MOST_BYTES: u64 = 256 * 1024;

/// Where those that run now keep their claims, by way of their own view of the file system; and the
/// users into whose processes we may not look.
pub(super) fn directories() -> (Vec<PathBuf>, BTreeSet<u32>) {
    let (mut directories, mut hidden) = (Vec::new(), BTreeSet::new());
    for candidate in candidates() {
        let Some(user) = candidate.user() else { continue };
        match environment(candidate.number) {
            Ok(variable) => {
                let directory = directory_of(variable, user);
                let below = directory.strip_prefix("/").unwrap_or(&directory);
                directories.push(Path::new(&format!("/proc/{}/root", candidate.number)).join(below));
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => drop(hidden.insert(user)),
            // It has ended meanwhile.
            Err(_) => {}
        }
    }
    (directories, hidden)
}

/// The processes that stand in an election, or may do so.
fn candidates() -> impl Iterator<Item = Process> {
    let is_one = |number: &u32| {
        let of = |file: &str| read(*number, file).unwrap_or_default();
        of("comm").trim_ascii_end() == PROGRAM.as_bytes()
            && of("cmdline").split(|byte| *byte == 0).any(|word| VERBS.contains(&word))
    };
    numbers().filter(is_one).filter_map(|number| Process::read(number).ok().flatten())
}

/// The numbers of all processes.
pub(super) fn numbers() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// What the kernel shows of a process there. Its user says how much that is.
fn read(number: u32, file: &str) -> io::Result<Vec<u8>> {
    let mut shown = Vec::new();
    fs::File::open(format!("/proc/{number}/{file}"))?.take(MOST_BYTES).read_to_end(&mut shown)?;
    Ok(shown)
}

/// What a process was started with.
pub(super) fn environment(number: u32) -> io::Result<impl Fn(&str) -> Option<OsString>> {
    let variables = read(number, "environ")?;
    Ok(move |name: &str| {
        let mut variables = variables.split(|byte| *byte == 0);
        let value = variables.find_map(|line| line.strip_prefix(name.as_bytes())?.strip_prefix(b"="))?;
        Some(OsStr::from_bytes(value).to_owned())
    })
}
