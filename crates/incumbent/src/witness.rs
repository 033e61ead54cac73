//! A witness: what was seen of who led from this host, so that a store which is older than it was
//! is noticed.
//!
//! A store that was restored from a copy gives tokens a second time, often under the same identity.
//! Nothing in it says so; those who have seen it before can. A witness only says so: it decides
//! nothing, and nobody is kept from office by it.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use incumbent_core::{ElectionName, Incarnation, StoreId, Token};
use incumbent_store::escape::{Digits, file_name, file_name_pieces};
use incumbent_store::{make_dir_durably, random_words, replace_durably};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::lock_wait::lock_within_a_second;
use crate::observer::CandidateInfo;

/// More than any sighting needs.
const MAX_FILE_BYTES: u64 = 4096;
/// The longest part of an encoded name in one file name, with room for what is added to it.
const PIECE_BYTES: usize = 200;
const HEAD: &str = "incumbent-witness 1";

/// The leaders with the highest tokens that were seen from this host: one for each store, by its
/// identity, and election. Kept in a directory, a small file for each.
///
/// Observers of a client that has one
/// ([`ClientBuilder::witness`](crate::ClientBuilder::witness)) say
/// [`Observation::StoreReset`](crate::Observation::StoreReset) first if the store is older than
/// what was seen, and remember whom they see. Its methods block, for as long as it takes to read
/// or replace a small file.
///
/// ```
/// use incumbent::{ElectionName, Sighting, StoreId, Token, Witness};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = std::env::temp_dir().join(format!("incumbent-witness-{}", std::process::id()));
/// let witness = Witness::new(&directory);
/// let (store, election) = (StoreId::new("etcd-cafe12"), ElectionName::new("jobs/nightly")?);
/// let sighting = |token| Sighting::new(Token::new(token).unwrap(), None);
/// witness.note(&store, &election, sighting(41))?;
/// witness.note(&store, &election, sighting(27))?; // the highest one counts
///
/// let seen = witness.seen(&store, &election)?.unwrap();
/// assert!(seen.is_later_than(&sighting(27))); // a store in which 27 leads is older than it was
/// # std::fs::remove_dir_all(&directory)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Witness {
    directory: Arc<Path>,
}

/// A leader that was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sighting {
    /// Its token.
    pub token: Token,
    /// Its enlistment. A candidate of another library has none, and neither has a member of a
    /// group.
    pub id: Option<Incarnation>,
}

impl Sighting {
    /// A leader with this token.
    pub fn new(token: Token, id: Option<Incarnation>) -> Sighting {
        Sighting { token, id }
    }

    /// This leader, if it has a token.
    pub fn of(leader: &CandidateInfo) -> Option<Sighting> {
        leader.token.map(|token| Sighting::new(token, leader.id))
    }

    /// Whether a store in which `now` leads is older than the one in which this was seen: a
    /// leader's token never goes back, and no two leaders ever have the same.
    pub fn is_later_than(&self, now: &Sighting) -> bool {
        let another = self.id.zip(now.id).is_some_and(|(ours, theirs)| ours != theirs);
        self.token > now.token || self.token == now.token && another
    }
}

impl Witness {
    /// Keeps what is seen in this directory. Nothing is made yet.
    pub fn new(directory: impl Into<PathBuf>) -> Witness {
        Witness { directory: directory.into().into() }
    }

    /// The highest that was seen, if anybody was. Something is there and cannot be understood:
    /// [`InvalidData`](io::ErrorKind::InvalidData).
    pub fn seen(&self, store: &StoreId, election: &ElectionName) -> io::Result<Option<Sighting>> {
        if is_unknown(store) {
            return Ok(None);
        }
        read(&self.path(store, election), |text| decode(store, election, text))
    }

    /// Remembers this leader, unless a later one was seen already. Of several processes that do
    /// this at the same moment the latest leader wins, unless one of them is stopped in the middle
    /// of it for longer than a second: then a warning may be lost, and nothing else.
    pub fn note(&self, store: &StoreId, election: &ElectionName, seen: Sighting) -> io::Result<()> {
        if is_unknown(store) || !self.is_news(store, election, seen)? {
            return Ok(());
        }
        let path = self.path(store, election);
        let directory = lock_directory_of(&path)?;
        // Somebody may have seen a later one meanwhile.
        if !self.is_news(store, election, seen)? {
            return Ok(());
        }
        write(&directory, &path, &encode(store, election, seen))
    }

    fn is_news(&self, store: &StoreId, election: &ElectionName, seen: Sighting) -> io::Result<bool> {
        match self.seen(store, election) {
            // What nobody can read warns nobody.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(true),
            known => Ok(known?.is_none_or(|known| {
                seen.token > known.token || seen.token == known.token && known.id.is_none() && seen.id.is_some()
            })),
        }
    }

    /// Which store was at this place when somebody was first seen to lead there: another one by now
    /// is a store that was replaced. A place is what people call it, such as a URL with no
    /// passwords in it. Something is there and cannot be understood:
    /// [`InvalidData`](io::ErrorKind::InvalidData).
    pub fn store_at(&self, place: &str) -> io::Result<Option<StoreId>> {
        read(&self.path_of_place(place), |text| decode_place(place, text))
    }

    /// Remembers which store is at this place, unless one was seen there before.
    pub fn note_place(&self, place: &str, store: &StoreId) -> io::Result<()> {
        if is_unknown(store) || self.store_at(place)?.is_some() {
            return Ok(());
        }
        let path = self.path_of_place(place);
        let directory = lock_directory_of(&path)?;
        if self.store_at(place)?.is_some() {
            return Ok(());
        }
        write(&directory, &path, &encode_place(place, store))
    }

    /// The file in which it is remembered. An operator who has settled what became of the store
    /// removes it.
    pub fn path(&self, store: &StoreId, election: &ElectionName) -> PathBuf {
        self.file([&*store.to_string(), election.as_str()], ".seen")
    }

    /// The file in which it is remembered which store was at a place. An operator who has replaced
    /// the store removes it.
    pub fn path_of_place(&self, place: &str) -> PathBuf {
        self.file(["places", place], ".store")
    }

    fn file(&self, names: [&str; 2], ending: &str) -> PathBuf {
        let mut path = self.directory.to_path_buf();
        for name in names {
            let name = file_name(name, Digits::Upper, |character| character.is_ascii_alphanumeric());
            path.extend(file_name_pieces(&name, PIECE_BYTES));
        }
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(ending);
        path.with_file_name(name)
    }
}

/// What a file of ours says. `None`: there is none.
fn read<T>(path: &Path, decode: impl FnOnce(&str) -> Option<T>) -> io::Result<Option<T>> {
    let mut text = String::new();
    // Not a pipe that somebody put there, which would never end.
    let file = match fs::symlink_metadata(path) {
        Ok(found) if found.is_file() => File::open(path),
        Ok(_) => return Err(io::Error::new(io::ErrorKind::InvalidData, not_one(path))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => Err(error),
    };
    file?.take(MAX_FILE_BYTES).read_to_string(&mut text)?;
    decode(&text).map(Some).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, not_one(path)))
}

/// The directory of this file, for us alone until it is dropped; or for us, too, if a process that
/// has it does not go on. Nobody's memory is to depend on that.
fn lock_directory_of(path: &Path) -> io::Result<File> {
    let parent = path.parent().unwrap_or(Path::new("."));
    make_dir_durably(parent)?;
    let directory = File::open(parent)?;
    lock_within_a_second(|| match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Ok(None),
        other => Ok(Some(other?)),
    })?;
    Ok(directory)
}

fn write(directory: &File, path: &Path, text: &str) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default();
    // Several processes may do this at once.
    let [number] = random_words()?;
    let draft = path.with_extension(format!("{number:016x}"));
    let written = replace_durably(directory, name, draft.file_name().unwrap_or_default(), text.as_bytes(), None);
    written.inspect_err(|_| drop(fs::remove_file(&draft)))
}

/// A group of peers that has not said yet which one it is: any other is called the same.
fn is_unknown(store: &StoreId) -> bool {
    store.to_string().ends_with("/unknown")
}

fn not_one(path: &Path) -> String {
    format!("{} is not what a witness has written", path.display())
}

fn encode(store: &StoreId, election: &ElectionName, seen: Sighting) -> String {
    let id = seen.id.map_or_else(|| "-".to_owned(), |id| id.to_string());
    format!("{HEAD}\nstore {store}\nelection {election}\ntoken {}\nid {id}\n", seen.token)
}

fn decode(store: &StoreId, election: &ElectionName, text: &str) -> Option<Sighting> {
    let mut fields = text.lines().rev();
    let id = match fields.next()?.strip_prefix("id ")? {
        "-" => None,
        id => Some(id.parse().ok()?),
    };
    let token = Token::new(fields.next()?.strip_prefix("token ")?.parse().ok()?)?;
    let seen = Sighting { token, id };
    // What we would write ourselves, to the byte.
    (encode(store, election, seen) == text).then_some(seen)
}

fn encode_place(place: &str, store: &StoreId) -> String {
    format!("{HEAD}\nplace {}\nstore {store}\n", place.escape_default())
}

fn decode_place(place: &str, text: &str) -> Option<StoreId> {
    let store = StoreId::new(text.lines().nth(2)?.strip_prefix("store ")?);
    (encode_place(place, &store) == text).then_some(store)
}

#[cfg(test)]
mod tests {
    use incumbent_testkit::TempDir;
    use incumbent_testkit::fuzz::{Rng, fuzz};

    use super::*;

    fn sighting(token: u64, id: Option<u128>) -> Sighting {
        Sighting::new(Token::new(token).unwrap(), id.map(Incarnation::from_bits))
    }

    fn election(name: &str) -> ElectionName {
        ElectionName::new(name).unwrap()
    }

    #[test]
    fn fuzz_what_a_witness_reads_it_has_written() {
        let (store, election) = (StoreId::new("store-1"), election("jobs/nightly"));
        let good = |rng: &mut Rng| {
            let id = (rng.below(2) == 0).then(|| rng.next_u64().into());
            let text = match rng.below(2) {
                0 => encode(&store, &election, sighting(1 + rng.below(1 << 40), id)),
                _ => encode_place("etcd://\u{fc}\n1", &StoreId::new(format!("store-{}", rng.below(9)))),
            };
            text.into_bytes()
        };
        fuzz(good, |bytes| {
            let Ok(text) = std::str::from_utf8(bytes) else { return false };
            let seen = decode(&store, &election, text).map(|seen| encode(&store, &election, seen));
            let place = decode_place("etcd://\u{fc}\n1", text).map(|store| encode_place("etcd://\u{fc}\n1", &store));
            let again = seen.or(place);
            if let Some(again) = &again {
                assert_eq!(again, text);
            }
            again.is_some()
        });
    }

    #[test]
    fn the_highest_leader_is_remembered_for_each_store_and_election() {
        let folder = TempDir::new("witness");
        let witness = Witness::new(folder.path().join("made/on/the/way"));
        let (a, b, jobs) = (StoreId::new("a"), StoreId::new("b/../c"), election("jobs/x"));
        assert_eq!(witness.seen(&a, &jobs).unwrap(), None);
        for (token, id) in [(5, None), (7, Some(1)), (6, Some(2)), (7, Some(3)), (7, None)] {
            witness.note(&a, &jobs, sighting(token, id)).unwrap();
        }
        assert_eq!(witness.seen(&a, &jobs).unwrap(), Some(sighting(7, Some(1))));
        assert_eq!(witness.seen(&b, &jobs).unwrap(), None);
        let long = election(&"ü".repeat(127));
        witness.note(&b, &long, sighting(3, None)).unwrap();
        witness.note(&b, &long, sighting(3, Some(9))).unwrap();
        assert_eq!(witness.seen(&b, &long).unwrap(), Some(sighting(3, Some(9))), "now it is known whose it was");
        assert_eq!(witness.seen(&a, &election("jobs")).unwrap(), None);
        let unknown = StoreId::new("consensus/unknown");
        witness.note(&unknown, &jobs, sighting(9, None)).unwrap();
        assert_eq!(witness.seen(&unknown, &jobs).unwrap(), None, "it may be another group by now");
    }

    #[test]
    fn the_highest_leader_is_remembered_whoever_writes_last() {
        let folder = TempDir::new("witness");
        let (witness, a, jobs) = (Witness::new(folder.path()), StoreId::new("a"), election("jobs"));
        for round in 0..50 {
            std::thread::scope(|scope| {
                for token in 1..=4 {
                    let (witness, a, jobs) = (&witness, &a, &jobs);
                    scope.spawn(move || witness.note(a, jobs, sighting(round * 4 + token, None)).unwrap());
                }
            });
            assert_eq!(witness.seen(&a, &jobs).unwrap(), Some(sighting(round * 4 + 4, None)));
        }
    }

    #[test]
    fn one_that_holds_the_lock_and_does_not_go_on_keeps_nobody_from_remembering() {
        let folder = TempDir::new("witness");
        let (witness, a, jobs) = (Witness::new(folder.path()), StoreId::new("a"), election("jobs"));
        let _held = lock_directory_of(&witness.path(&a, &jobs)).unwrap();
        witness.note(&a, &jobs, sighting(3, None)).unwrap();
        assert_eq!(witness.seen(&a, &jobs).unwrap(), Some(sighting(3, None)));
    }

    #[test]
    fn the_first_store_at_a_place_is_remembered() {
        let folder = TempDir::new("witness");
        let witness = Witness::new(folder.path());
        let (first, second, place) = (StoreId::new("a"), StoreId::new("b"), "etcd://10.0.0.1:2379/x?y=\n");
        assert_eq!(witness.store_at(place).unwrap(), None);
        witness.note_place(place, &first).unwrap();
        witness.note_place(place, &second).unwrap();
        assert_eq!(witness.store_at(place).unwrap(), Some(first.clone()), "until an operator removes it");
        assert_eq!(witness.store_at("etcd://10.0.0.2:2379").unwrap(), None);
        fs::remove_file(witness.path_of_place(place)).unwrap();
        witness.note_place(place, &second).unwrap();
        assert_eq!(witness.store_at(place).unwrap(), Some(second));
        fs::write(witness.path_of_place(place), "nonsense").unwrap();
        assert_eq!(witness.store_at(place).unwrap_err().kind(), io::ErrorKind::InvalidData);
        witness.note_place("unknown", &StoreId::new("consensus/unknown")).unwrap();
        assert_eq!(witness.store_at("unknown").unwrap(), None);
    }

    #[test]
    fn a_store_is_older_if_a_token_went_back_or_is_anothers_now() {
        let seen = sighting(27, Some(1));
        assert!(seen.is_later_than(&sighting(26, Some(1))));
        assert!(seen.is_later_than(&sighting(27, Some(2))));
        assert!(!seen.is_later_than(&sighting(27, Some(1))));
        assert!(!seen.is_later_than(&sighting(27, None)), "nobody can tell");
        assert!(!seen.is_later_than(&sighting(28, Some(2))));
    }

    #[test]
    fn what_is_no_sighting_is_said_and_replaced() {
        let folder = TempDir::new("witness");
        let witness = Witness::new(folder.path());
        let (store, jobs) = (StoreId::new("s"), election("jobs"));
        let path = witness.path(&store, &jobs);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let good = encode(&store, &jobs, sighting(5, None));
        for damaged in ["", "nonsense", good.trim_end(), &good.replace("store s", "store t"), &format!("{good}\n")] {
            fs::write(&path, damaged).unwrap();
            assert_eq!(witness.seen(&store, &jobs).unwrap_err().kind(), io::ErrorKind::InvalidData, "{damaged:?}");
        }
        witness.note(&store, &jobs, sighting(4, None)).unwrap();
        assert_eq!(witness.seen(&store, &jobs).unwrap(), Some(sighting(4, None)));
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "no draft is left");
    }
}
