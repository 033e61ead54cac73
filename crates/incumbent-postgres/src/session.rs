//! A session: a row with a TTL, and the steps that act on its entries.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use incumbent_store::{
    Cas, Cursor, Effect, ElectionName, EntryId, Fut, Held, Liveness, NewEntry, Nonce, Renewal, Session, Standing,
    StoreError, StoreId, Version, Wake, Watched, check_candidate_name, check_value,
};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_postgres::types::Type;

use crate::answer::{self, column, number, number_of, one};
use crate::connection::Statement;
use crate::store::{Inner, cas};
use crate::watcher::{Renewals, Renewed, Wanted, wait};

pub(crate) struct PostgresSession {
    store: Arc<Inner>,
    id: Vec<u8>,
    store_id: StoreId,
    liveness: Liveness,
    renewed: watch::Sender<Renewed>,
}

impl PostgresSession {
    pub(crate) fn new(store: Arc<Inner>, id: Vec<u8>, store_id: StoreId, ttl: Duration) -> PostgresSession {
        PostgresSession { store, id, store_id, liveness: Liveness::new(ttl), renewed: watch::Sender::default() }
    }

    async fn renew(&self, held: &[Held]) -> Result<Renewal, StoreError> {
        let params: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 1] = [(&self.id, Type::BYTEA)];
        let renew = Statement { sql: &self.store.sql.renew, params: &params };
        // On a connection of its own: answers come in order, and others may wait for a lock.
        let rows = self.store.renewals.call("proving that we live", Effect::Write, renew, None).await?;
        let (renewal, ahead) = answer::renewal(&rows, held)?;
        self.renewed.send_replace(Renewed { at: Some(Instant::now()), ahead });
        Ok(renewal)
    }

    async fn enlist(&self, election: &ElectionName, entry: &NewEntry) -> Result<Standing, StoreError> {
        check_candidate_name(&entry.name)?;
        check_value(&entry.value)?;
        let incarnation = entry.incarnation.to_bits().to_be_bytes();
        let rows = self
            .store
            .write(
                "enlisting",
                &self.store.sql.enlist,
                &[
                    (&self.id, Type::BYTEA),
                    (&election.as_str().as_bytes(), Type::BYTEA),
                    (&&incarnation[..], Type::BYTEA),
                    (&entry.name.as_bytes(), Type::BYTEA),
                    (&&entry.value[..], Type::BYTEA),
                ],
            )
            .await?;
        self.stands(election, &rows).await
    }

    async fn standing(&self, held: &Held) -> Result<Standing, StoreError> {
        let params: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 3] = [
            (&self.id, Type::BYTEA),
            (&held.election.as_str().as_bytes(), Type::BYTEA),
            (&number(held.token), Type::INT8),
        ];
        let standing = Statement { sql: &self.store.sql.standing, params: &params };
        let rows = self.store.calls.call("asking where we stand", Effect::None, standing, None).await?;
        self.stands(&held.election, &rows).await
    }

    async fn stands(&self, election: &ElectionName, rows: &[tokio_postgres::Row]) -> Result<Standing, StoreError> {
        let (standing, head_changed) = answer::standing(election, rows)?;
        if head_changed {
            // Only those who have no entry are told: the one behind us is behind us still.
            self.store.tell(election, "h", None).await;
        }
        Ok(standing)
    }

    async fn publish(
        &self,
        held: &Held,
        was: Version,
        value: &Bytes,
        ready: Option<Nonce>,
    ) -> Result<Option<Version>, StoreError> {
        check_value(value)?;
        let rows = self
            .store
            .write_and_tell(
                "publishing",
                &self.store.sql.publish,
                &held.election,
                ("e", Some(number(held.token))),
                &[
                    (&self.id, Type::BYTEA),
                    (&held.election.as_str().as_bytes(), Type::BYTEA),
                    (&number(held.token), Type::INT8),
                    (&was.0.cast_signed(), Type::INT8),
                    (&&value[..], Type::BYTEA),
                    (&ready.map(|Nonce(bits)| bits.cast_signed()), Type::INT8),
                ],
            )
            .await?;
        Ok(column::<Option<i64>>(one(&rows)?, 0)?.map(|changed| Version(changed.unsigned_abs())))
    }

    async fn withdraw(&self, held: &Held, heir: Option<&EntryId>) -> Result<Cas, StoreError> {
        let rows = self
            .store
            .write_and_tell(
                "withdrawing",
                &self.store.sql.withdraw,
                &held.election,
                ("g", Some(number(held.token))),
                &[
                    (&self.id, Type::BYTEA),
                    (&held.election.as_str().as_bytes(), Type::BYTEA),
                    (&number(held.token), Type::INT8),
                    (&heir.map(number_of), Type::INT8),
                ],
            )
            .await?;
        cas(&rows)
    }

    async fn close(&self) -> Result<(), StoreError> {
        let rows = self.store.write("closing the session", &self.store.sql.close, &[(&self.id, Type::BYTEA)]).await?;
        for row in &rows {
            self.store.tell_bytes(column(row, 0)?, "g", Some(column(row, 1)?)).await;
        }
        Ok(())
    }
}

impl fmt::Debug for PostgresSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresSession").field("ttl", &self.liveness.ttl).finish_non_exhaustive()
    }
}

impl Session for PostgresSession {
    fn liveness(&self) -> Liveness {
        self.liveness
    }

    fn store_id(&self) -> StoreId {
        self.store_id.clone()
    }

    fn renew<'a>(&'a self, held: &'a [Held]) -> Fut<'a, Renewal> {
        Box::pin(self.renew(held))
    }

    fn enlist<'a>(&'a self, election: &'a ElectionName, entry: &'a NewEntry) -> Fut<'a, Standing> {
        Box::pin(self.enlist(election, entry))
    }

    fn standing<'a>(&'a self, held: &'a Held, _behind: Option<&'a EntryId>) -> Fut<'a, Standing> {
        Box::pin(self.standing(held))
    }

    fn watch(&self, watched: &Watched, from: Cursor) -> Wake {
        let renewals = Renewals { ttl: self.liveness.ttl, renewed: self.renewed.subscribe() };
        let election = watched.held.election.clone();
        Box::pin(wait(self.store.clone(), election, Wanted::by_entry(watched), from, Some(renewals)))
    }

    fn publish<'a>(
        &'a self,
        held: &'a Held,
        was: Version,
        value: &'a Bytes,
        ready: Option<Nonce>,
    ) -> Fut<'a, Option<Version>> {
        Box::pin(self.publish(held, was, value, ready))
    }

    fn withdraw<'a>(&'a self, held: &'a Held, heir: Option<&'a EntryId>) -> Fut<'a, Cas> {
        Box::pin(self.withdraw(held, heir))
    }

    fn close(&self) -> Fut<'_, ()> {
        Box::pin(self.close())
    }
}
