//! The office record: one node, changed by compare-and-set, with a tombstone that goes in time.
//!
//! A node's version starts again when the node does, so it alone cannot tell a record from its
//! successor. Removing a record therefore changes the node above all records in the same step, and
//! writing one checks that node, too.

use std::time::Duration;

use incumbent_store::record::{decode_office, encode_office};
use incumbent_store::{Cas, Effect, ElectionName, Ended, Office, StoreError, Version};
use zookeeper_client::{Client, CreateMode, Error, MultiWriteError, MultiWriteResult, Stat};

use crate::dialect::DONE;
use crate::error::{classify, found, reading};
use crate::node::Node;
use crate::store::Inner;

/// Each further attempt means that a record of some election was removed, or a node that is needed
/// was missing.
const ATTEMPTS: usize = 16;
/// Comes before the record once it has been changed since its tombstone was set: when that was, by
/// the servers' clock.
const SINCE: &str = "ended-since ";

/// The record as it was read.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) office: Office,
    /// When the tombstone was set, in milliseconds of the servers' clock.
    since: Option<i64>,
    stat: Option<Stat>,
}

impl Found {
    fn decode(path: &str, node: Option<Node>) -> Result<Found, StoreError> {
        let Some((data, stat)) = node else { return Ok(Found::default()) };
        let damaged = || StoreError::Corrupt { what: format!("the office record at {path} cannot be read") };
        let text = std::str::from_utf8(&data).map_err(|_| damaged())?;
        let (since, text) = match text.strip_prefix(SINCE) {
            Some(rest) => {
                let (since, text) = rest.split_once('\n').ok_or_else(damaged)?;
                (Some(since.parse().map_err(|_| damaged())?), text)
            }
            None => (None, text),
        };
        let office = decode_office(text.as_bytes(), Version(stat.mzxid.unsigned_abs())).ok_or_else(damaged)?;
        let since = office.ended.as_ref().map(|_| since.unwrap_or(stat.mtime));
        Ok(Found { office, since, stat: Some(stat) })
    }

    /// The data of a record that follows this one. The time of a tombstone that stays is not
    /// started again.
    fn followed_by(&self, to: &Office) -> Vec<u8> {
        let id = |office: &Office| office.ended.as_ref().map(|ended| ended.id);
        let mut data = match self.since.filter(|_| id(to) == id(&self.office)) {
            Some(since) => format!("{SINCE}{since}\n").into_bytes(),
            None => Vec::new(),
        };
        data.extend(encode_office(to));
        data
    }
}

impl Inner {
    /// From what was read at the record's path to the record. One whose tombstone's time has passed
    /// loses it here.
    pub(crate) async fn office_from(
        &self,
        client: &Client,
        election: &ElectionName,
        read: Option<Node>,
    ) -> Result<Office, StoreError> {
        let path = self.paths.office(election);
        read.iter().for_each(|(_, stat)| self.seen.note(stat));
        let mut found = Found::decode(&path, read)?;
        for _ in 0..ATTEMPTS {
            let (Some(ended), Some(since)) = (&found.office.ended, found.since) else { return Ok(found.office) };
            if !self.has_passed(client, since, ended).await? {
                return Ok(found.office);
            }
            let without = found.office.clone().with_ended(None);
            // Refused: it was changed meanwhile, and is read again.
            self.set_office_on(client, election, found.office.version, &without).await?;
            found = self.read_office(client, election).await?;
        }
        Err(keeps_changing(&path))
    }

    pub(crate) async fn read_office(&self, client: &Client, election: &ElectionName) -> Result<Found, StoreError> {
        let path = self.paths.office(election);
        let read = found(client.get_data(&path).await, "reading the office record")?;
        read.iter().for_each(|(_, stat)| self.seen.note(stat));
        Found::decode(&path, read)
    }

    /// Hosts share no clock: the servers' own says when a tombstone's time has passed. Only a write
    /// shows it.
    async fn has_passed(&self, client: &Client, since: i64, ended: &Ended) -> Result<bool, StoreError> {
        let path = self.paths.clock();
        let stat = match client.set_data(&path, &[], None).await {
            Err(Error::NoNode) => {
                self.make(client, &path, CreateMode::Persistent).await?;
                client.set_data(&path, &[], None).await
            }
            other => other,
        };
        let stat = stat.map_err(reading("asking for the time"))?;
        self.seen.note(&stat);
        let passed = Duration::from_millis(u64::try_from(stat.mtime.saturating_sub(since)).unwrap_or(0));
        Ok(passed >= ended.keep)
    }

    pub(crate) async fn set_office_on(
        &self,
        client: &Client,
        election: &ElectionName,
        was: Version,
        to: &Office,
    ) -> Result<Cas, StoreError> {
        let (path, above) = (self.paths.office(election), self.paths.offices());
        for _ in 0..ATTEMPTS {
            // In this order: what is removed after the first answer fails the check.
            let (guard, record) = tokio::join!(client.check_stat(&above), self.read_office(client, election));
            let guard = guard.map_err(reading("reading the office record"))?;
            let record = record?;
            if record.office.version != was {
                return Ok(Cas::Refused);
            }
            let guard = match guard {
                _ if record.stat.is_none() && to.is_blank() => return Ok(Cas::Done),
                Some(guard) => guard.version,
                None => {
                    self.make(client, &above, CreateMode::Persistent).await?;
                    continue;
                }
            };
            let data = record.followed_by(to);
            let mut writer = client.new_multi_writer();
            let mut added = match &record.stat {
                None => writer.add_create(&path, &data, &self.mode(CreateMode::Persistent)),
                Some(stat) if to.is_blank() => writer
                    .add_set_data(&above, &[], Some(guard))
                    .and_then(|()| writer.add_delete(&path, Some(stat.version))),
                Some(stat) => writer
                    .add_check_version(&above, guard)
                    .and_then(|()| writer.add_set_data(&path, &data, Some(stat.version))),
            };
            if to.ended.is_some()
                && to.ended != record.office.ended
                && let Some(mark) = self.missing_mark(client, election).await?
            {
                added = added.and_then(|()| writer.add_create(&mark, &[], &self.mode(CreateMode::Persistent)));
            }
            added.map_err(|error| classify(error, Effect::None, WRITING))?;
            match writer.commit().await {
                Ok(results) => {
                    results.iter().for_each(|result| self.note_written(result));
                    return Ok(Cas::Done);
                }
                // Something has changed: look again.
                Err(MultiWriteError::OperationFailed {
                    source: Error::BadVersion | Error::NoNode | Error::NodeExists,
                    ..
                }) => {}
                Err(error) => return Err(classify(error.into(), Effect::Write, WRITING)),
            }
        }
        Err(keeps_changing(&path))
    }

    /// The node that tells those of another library that the election is over, if they know one, it
    /// is not there, and there is a line.
    async fn missing_mark(&self, client: &Client, election: &ElectionName) -> Result<Option<String>, StoreError> {
        if !self.paths.dialect().marks_the_end() {
            return Ok(None);
        }
        let line = self.paths.election(election)?;
        let mark = format!("{line}/{DONE}");
        let (line, there) = tokio::join!(client.check_stat(&line), client.check_stat(&mark));
        let failed = |error| classify(error, Effect::None, "looking for the mark of the end");
        Ok((line.map_err(failed)?.is_some() && there.map_err(failed)?.is_none()).then_some(mark))
    }

    fn note_written(&self, result: &MultiWriteResult) {
        // Some servers say nothing of a node that was made in a transaction.
        if let MultiWriteResult::Create { stat, .. } | MultiWriteResult::SetData { stat } = result
            && !stat.is_invalid()
        {
            self.seen.note(stat);
        }
    }
}

const WRITING: &str = "writing the office record";

fn keeps_changing(path: &str) -> StoreError {
    StoreError::Unavailable { what: format!("the office records around {path} keep changing"), source: None }
}

#[cfg(test)]
mod tests {
    use incumbent_store::{Deposed, Nonce, Token};

    use super::*;

    fn ended(id: u64) -> Office {
        Office::default().with_ended(Ended::new(Nonce(id), Duration::from_secs(5)))
    }

    fn stat(mtime: i64) -> Stat {
        Stat {
            czxid: 1,
            mzxid: 7,
            ctime: 0,
            mtime,
            version: 0,
            cversion: 0,
            aversion: 0,
            ephemeral_owner: 0,
            data_length: 0,
            num_children: 0,
            pzxid: 1,
        }
    }

    #[test]
    fn the_time_of_a_tombstone_starts_when_it_is_set_and_not_again() {
        let first = Found::default().followed_by(&ended(1));
        let found = Found::decode("/o", Some((first, stat(1000)))).unwrap();
        assert_eq!((found.since, found.office.version), (Some(1000), Version(7)));
        let deposed = Token::new(3).map(Deposed::new);
        let more = ended(1).with_deposed(deposed.clone());
        let found = Found::decode("/o", Some((found.followed_by(&more), stat(2000)))).unwrap();
        assert_eq!((found.since, &found.office.deposed), (Some(1000), &deposed));
        let found = Found::decode("/o", Some((found.followed_by(&ended(2)), stat(3000)))).unwrap();
        assert_eq!(found.since, Some(3000), "another end");
        let without = more.with_ended(None);
        let found = Found::decode("/o", Some((found.followed_by(&without), stat(4000)))).unwrap();
        assert_eq!(found.since, None);
    }

    #[test]
    fn a_damaged_record_is_named() {
        for data in [&b"nonsense"[..], b"ended-since x\nincumbent 1\n", b"ended-since 7", b"\xff"] {
            match Found::decode("/o", Some((data.to_vec(), stat(0)))) {
                Err(StoreError::Corrupt { what }) => assert!(what.contains("/o"), "{what}"),
                other => panic!("{other:?}"),
            }
        }
    }
}
