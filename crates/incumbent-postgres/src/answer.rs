//! What the functions answer, in the seam's words. Columns are named as in `schema.sql`.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use incumbent_store::record::decode_office;
use incumbent_store::{
    Cursor, ElectionName, Entry, EntryId, Held, Incarnation, Line, Merit, Nonce, Office, Place, Renewal, Standing,
    StoreError, StoreId, Token, Version,
};
use tokio_postgres::SimpleQueryRow as Row;

/// One column of a row.
pub(crate) fn column<'a, T: Column<'a>>(row: &'a Row, name: &str) -> Result<T, StoreError> {
    let text = row.try_get(name).map_err(|error| corrupt(format_args!("column {name}: {error}")))?;
    T::read(text).ok_or_else(|| corrupt(format_args!("column {name}: {text:?}")))
}

/// The one value of an answer that is no more than that.
pub(crate) fn value<'a, T: Column<'a>>(rows: &'a [Row]) -> Result<T, StoreError> {
    let text = one(rows)?.try_get(0).map_err(|error| corrupt(format_args!("the value: {error}")))?;
    T::read(text).ok_or_else(|| corrupt(format_args!("the value {text:?}")))
}

/// A value, from the text that the server writes for it.
pub(crate) trait Column<'a>: Sized {
    fn read(text: Option<&'a str>) -> Option<Self>;
}

impl<'a> Column<'a> for &'a str {
    fn read(text: Option<&'a str>) -> Option<&'a str> {
        text
    }
}

impl Column<'_> for i64 {
    fn read(text: Option<&str>) -> Option<i64> {
        text?.parse().ok()
    }
}

impl Column<'_> for bool {
    fn read(text: Option<&str>) -> Option<bool> {
        match text? {
            "t" => Some(true),
            "f" => Some(false),
            _ => None,
        }
    }
}

impl Column<'_> for Vec<u8> {
    fn read(text: Option<&str>) -> Option<Vec<u8>> {
        bytes_of(text?.strip_prefix(r"\x")?)
    }
}

impl<'a, T: Column<'a>> Column<'a> for Option<T> {
    fn read(text: Option<&'a str>) -> Option<Option<T>> {
        text.map_or(Some(None), |text| T::read(Some(text)).map(Some))
    }
}

/// What hexadecimal digits stand for.
pub(crate) fn bytes_of(hex: &str) -> Option<Vec<u8>> {
    let digit = |digit: u8| char::from(digit).to_digit(16);
    let pair = |pair: &[u8]| match *pair {
        [high, low] => u8::try_from(digit(high)? * 16 + digit(low)?).ok(),
        _ => None,
    };
    hex.as_bytes().chunks(2).map(pair).collect()
}

fn corrupt(what: impl std::fmt::Display) -> StoreError {
    StoreError::Corrupt { what: format!("an answer of the server's functions cannot be read: {what}") }
}

/// The one row of an answer.
pub(crate) fn one(rows: &[Row]) -> Result<&Row, StoreError> {
    rows.first().ok_or_else(|| corrupt("it is empty"))
}

pub(crate) fn number(token: Token) -> i64 {
    // Tokens fit a signed number.
    i64::try_from(token.get()).unwrap_or(i64::MAX)
}

/// The token in the name of an entry. None that is there has the one that stands for all other
/// names.
pub(crate) fn number_of(entry: &EntryId) -> i64 {
    let token = entry.as_str().parse().ok().and_then(Token::new).filter(|token| id(*token) == *entry);
    token.map_or(-1, number)
}

fn id(token: Token) -> EntryId {
    EntryId::new(token.to_string())
}

fn token(number: i64) -> Result<Token, StoreError> {
    u64::try_from(number).ok().and_then(Token::new).ok_or_else(|| corrupt(format_args!("the token {number}")))
}

fn version(number: i64) -> Version {
    Version(number.unsigned_abs())
}

fn incarnation(bytes: Vec<u8>) -> Result<Incarnation, StoreError> {
    let bytes = bytes.try_into().map_err(|_| corrupt("an incarnation"))?;
    Ok(Incarnation::from_bits(u128::from_be_bytes(bytes)))
}

pub(crate) fn election(name: Vec<u8>) -> Result<ElectionName, StoreError> {
    Ok(ElectionName::new(&String::from_utf8(name).map_err(corrupt)?)?)
}

fn micros(number: i64) -> Duration {
    Duration::from_micros(u64::try_from(number).unwrap_or(0))
}

/// An entry, in columns whose names begin like this.
fn entry(row: &Row, prefix: &str) -> Result<Entry, StoreError> {
    let name = |name| format!("{prefix}{name}");
    let token = token(column(row, &name("token"))?)?;
    let mut entry = Entry::new(id(token), token);
    entry.incarnation = Some(incarnation(column(row, &name("incarnation"))?)?);
    entry.name = Some(Arc::from(String::from_utf8(column(row, &name("name"))?).map_err(corrupt)?));
    entry.value = Bytes::from(column::<Vec<u8>>(row, &name("value"))?);
    entry.ready = column::<Option<i64>>(row, &name("ready"))?.map(|bits| Nonce(bits.cast_unsigned()));
    entry.version = version(column(row, &name("changed"))?);
    let words = column(row, &name("merit"))?;
    entry.merit = Merit::from_words(words).ok_or_else(|| corrupt(words))?;
    Ok(entry)
}

fn office(row: &Row) -> Result<Office, StoreError> {
    let version = version(column(row, "office_version")?);
    match column::<Option<Vec<u8>>>(row, "office")? {
        None => Ok(Office::default()),
        Some(record) => {
            let damaged = || StoreError::Corrupt { what: "an office record was not written by this library".into() };
            decode_office(&record, version).ok_or_else(damaged)
        }
    }
}

/// The answer of `standing` and `enlist`.
#[derive(Debug)]
pub(crate) struct Stands {
    pub(crate) standing: Standing,
    /// Whether the head of the line has changed.
    pub(crate) head_changed: bool,
    /// Whether the one ahead has expired and could not be removed: its session is locked.
    pub(crate) ahead_expired: bool,
}

pub(crate) fn standing(election: &ElectionName, rows: &[Row]) -> Result<Stands, StoreError> {
    let row = one(rows)?;
    let held = || {
        let (token, incarnation) = (token(column(row, "token")?)?, incarnation(column(row, "incarnation")?)?);
        Ok::<_, StoreError>(Held::new(election.clone(), id(token), token, incarnation))
    };
    let place = match column::<&str>(row, "place")? {
        "leading" => Place::Leading(held()?),
        "behind" => Place::behind(Some(held()?), entry(row, "ahead_")?, None),
        "gone" => Place::Gone,
        "session gone" => return Err(StoreError::SessionGone),
        "already in line" => return Err(StoreError::AlreadyInLine(held()?)),
        other => return Err(corrupt(other)),
    };
    let mut standing = Standing::new(place, office(row)?, cursor(row)?);
    standing.published = version(column::<Option<i64>>(row, "published")?.unwrap_or(0));
    let behind = matches!(standing.place, Place::Behind { .. });
    let ahead_expired = behind && column::<Option<i64>>(row, "ahead_left_us")?.is_some_and(|left| left <= 0);
    Ok(Stands { standing, head_changed: column(row, "head_changed")?, ahead_expired })
}

fn cursor(row: &Row) -> Result<Cursor, StoreError> {
    Ok(Cursor(column::<i64>(row, "cursor")?.unsigned_abs()))
}

/// The answer of `line`, which was asked for one entry more than `limit`.
pub(crate) fn line(rows: &[Row], limit: usize) -> Result<Line, StoreError> {
    let first = one(rows)?;
    let mut entries = Vec::new();
    for row in rows {
        if column::<Option<i64>>(row, "token")?.is_some() {
            entries.push(entry(row, "")?);
        }
    }
    let more = entries.len() > limit;
    entries.truncate(limit);
    // Schemas of older versions do not say.
    let says = first.columns().iter().any(|column| column.name() == "quiet_us");
    let quiet = if says { column::<Option<i64>>(first, "quiet_us")?.map(micros) } else { None };
    let stalled = missing_standby(first)?.map(Into::into);
    let mut line = Line::new(entries, more, office(first)?, cursor(first)?);
    (line.quiet, line.stalled) = (quiet, stalled);
    Ok(line)
}

/// The standbys that commits wait for, where too few of them are there: a value for people, to be
/// selected as `missing_standby`. As far as this role can see: to others than those who read all
/// statistics a standby that is there may be any.
pub(crate) const MISSING_STANDBY: &str = "(SELECT CASE WHEN names <> '' AND \
    (SELECT count(*) FROM pg_catalog.pg_stat_replication \
    WHERE coalesce(sync_state, 'sync') IN ('sync', 'quorum')) \
    < coalesce(substring(names FROM '(?i)^ *(?:first|any)? *([0-9]+) *[(]')::int, 1) THEN names END \
    FROM (SELECT current_setting('synchronous_standby_names') AS names) setting) AS missing_standby";

/// The sentence about it.
pub(crate) fn missing_standby(row: &Row) -> Result<Option<String>, StoreError> {
    let names: Option<&str> = column(row, "missing_standby")?;
    Ok(names.map(|names| {
        format!(
            "synchronous_standby_names is set ({names}), and no such standby is connected: every commit waits for one"
        )
    }))
}

/// Who is ahead of an entry, as a renewal saw it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ahead {
    /// Its token; `None`: nobody is.
    pub(crate) token: Option<i64>,
    /// How long it has, if that is less than half our TTL; nothing, if its end has to be set anew.
    pub(crate) left: Option<Duration>,
    /// The version of what it says.
    pub(crate) version: Option<Version>,
    /// The version of the office record.
    pub(crate) office: Version,
}

/// The answer of `renew`: what it says of those that were named, and who is ahead in each election.
pub(crate) fn renewal(rows: &[Row], named: &[Held]) -> Result<(Renewal, HashMap<ElectionName, Ahead>), StoreError> {
    let Some(first) = rows.first() else { return Err(StoreError::SessionGone) };
    let mut renewal = Renewal::alive(micros(column(first, "granted_us")?));
    let (mut there, mut ahead) = (HashSet::new(), HashMap::new());
    let expected: HashSet<_> = named.iter().map(|held| (&held.election, held.token)).collect();
    for row in rows {
        let Some(name) = column::<Option<Vec<u8>>>(row, "election")? else { continue };
        let (election, token) = (election(name)?, token(column(row, "token")?)?);
        let left = column::<Option<i64>>(row, "ahead_left_us")?.map(micros);
        let says = column::<Option<i64>>(row, "ahead_changed")?.map(version);
        let office = version(column(row, "office_version")?);
        ahead.insert(election.clone(), Ahead { token: column(row, "ahead")?, left, version: says, office });
        if !expected.contains(&(&election, token)) {
            let incarnation = incarnation(column(row, "incarnation")?)?;
            renewal.stray.push(Held::new(election.clone(), id(token), token, incarnation));
        }
        there.insert((election, token));
    }
    let is_there = |held: &&Held| there.contains(&(held.election.clone(), held.token));
    renewal.gone = named.iter().filter(|held| !is_there(held)).cloned().collect();
    Ok((renewal, ahead))
}

/// The answer of `open`: its id, its TTL, and the store that it is in.
pub(crate) fn session(rows: &[Row]) -> Result<(Vec<u8>, Duration, StoreId), StoreError> {
    let row = one(rows)?;
    Ok((column(row, "id")?, micros(column(row, "granted_us")?), StoreId::new(column::<&str>(row, "store")?)))
}

/// The answer of `changed`: whether there is something to look at, and when to look again.
pub(crate) fn changed(rows: &[Row]) -> Result<(bool, Option<Duration>), StoreError> {
    let row = one(rows)?;
    Ok((column(row, "changed")?, column::<Option<i64>>(row, "left_us")?.map(micros)))
}
