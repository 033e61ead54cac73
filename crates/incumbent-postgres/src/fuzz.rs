//! Feeds the readers of columns, of notifications, which anybody may send, and of what a fence says
//! of its mark.

use incumbent_store::{StoreId, Token};
use incumbent_testkit::fuzz::{Rng, fuzz};

use crate::answer::Column;
use crate::fence::mark_in;
use crate::watcher::{Wanted, election_of};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes that are no text are refused by the client library.
fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

#[test]
fn fuzz_a_column_is_read_whole_or_not_at_all() {
    let good = |rng: &mut Rng| {
        let number = rng.next_u64();
        let written = match rng.below(3) {
            0 => number.cast_signed().to_string(),
            1 => format!("\\x{}", hex(&number.to_be_bytes())),
            _ => "t".to_owned(),
        };
        written.into_bytes()
    };
    fuzz(good, |column| {
        let column = text(column);
        let bytes = Vec::<u8>::read(column).map(|bytes| format!("\\x{}", hex(&bytes)));
        let truth = bool::read(column).map(|truth| if truth { "t" } else { "f" }.to_owned());
        for read in [&bytes, &truth].into_iter().flatten() {
            assert!(column.is_some_and(|column| column.eq_ignore_ascii_case(read)), "{column:?} is read as {read}");
        }
        let number = i64::read(column);
        if let Some(number) = number {
            // It may have a sign or a zero too many.
            assert!(column.is_some_and(|column| column.ends_with(&number.unsigned_abs().to_string())), "{column:?}");
        }
        let nullable = Option::<i64>::read(column);
        assert_eq!(nullable, if column.is_none() { Some(None) } else { number.map(Some) });
        bytes.is_some() || truth.is_some() || number.is_some()
    });
}

#[test]
fn fuzz_a_notification_wakes_whom_it_names_and_nobody_else() {
    let wanted = Wanted { own: Some(7), ahead: Some(5), heir: Some(9), ..Wanted::default() };
    let good = |rng: &mut Rng| {
        let words = ["o", "h", "g5", "g7", "e9", "e5", "g6 h"][rng.below(7) as usize];
        format!("{} {words}", hex(b"jobs/x")).into_bytes()
    };
    fuzz(good, |payload| {
        let Some((name, words)) = text(payload).and_then(|payload| payload.split_once(' ')) else { return false };
        let election = election_of(name);
        if let Some(election) = &election {
            assert!(hex(election.as_str().as_bytes()).eq_ignore_ascii_case(name), "{name} is read as {election}");
        }
        let wakes = words.split(' ').find(|word| wanted.is_about(word));
        if let Some(word) = wakes {
            let is_office = word.starts_with('o');
            assert!(is_office || ["g5", "g7", "g9", "e9"].contains(&&*plain(word)), "{word:?} wakes");
        }
        election.is_some() && wakes.is_some()
    });
}

/// Without a sign and zeros that change nothing.
fn plain(word: &str) -> String {
    let (kind, number) = word.split_at(1);
    format!("{kind}{}", number.trim_start_matches('+').trim_start_matches('0'))
}

#[test]
fn fuzz_a_mark_is_read_as_the_fence_wrote_it() {
    let shown = StoreId::new("postgres-1");
    let good = |rng: &mut Rng| {
        let token = rng.below(1 << 53);
        let detail = if rng.below(2) == 0 { token.to_string() } else { format!("{token} postgres-2") };
        detail.into_bytes()
    };
    fuzz(good, |detail| {
        let Some(detail) = text(detail) else { return false };
        let mark = mark_in(detail, &shown);
        let (number, of) = detail.split_once(' ').unwrap_or((detail, "postgres-1"));
        assert_eq!(mark.store.as_str(), of);
        if let Some(token) = mark.token {
            assert!(number.ends_with(&token.to_string()) && token.get() <= Token::MAX, "{detail} is read as {mark:?}");
        }
        mark.token.is_some()
    });
}
