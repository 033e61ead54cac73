//! The schema: found, refused if it is not for us, and made by those who write if it is missing.

use incumbent_store::{Effect, StoreError};
use tokio_postgres::{Client, SimpleQueryRow};

use crate::answer::{column, value};
use crate::connector::{Connector, named};
use crate::error::classify;
use crate::literal::Literal;
use crate::message::{BEGIN, look};

/// The version that this library makes and speaks. The functions have it in their names, so that
/// two versions of the library can run side by side during a roll-out.
const VERSION: i64 = 7;
/// Of `schema.sql` in that version, so that no change of it goes without another version.
#[cfg(test)]
const CHECKSUM: u64 = 0xeca9b5a19728d0bb;

const DDL: &str = include_str!("schema.sql");

/// Where the tables and functions are.
#[derive(Debug)]
pub(crate) struct Schema {
    name: String,
}

impl Schema {
    /// Plain names only: they are part of every statement.
    pub(crate) fn new(name: &str) -> Result<Schema, StoreError> {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        let starts_well = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
        if !starts_well || !name.chars().all(plain) || name.len() > 63 || name.starts_with("pg_") || name == "public" {
            let what = format!(
                "the schema {name:?}: it is one of its own, of lower-case letters, digits and _, at most 63 of them"
            );
            return Err(StoreError::Misuse { what });
        }
        Ok(Schema { name: name.to_owned() })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// A call of one of its functions.
    pub(crate) fn call(&self, function: &str, arguments: &[&dyn Literal]) -> String {
        let mut sql = format!("SELECT * FROM \"{}\".{function}(", self.name);
        for (number, argument) in arguments.iter().enumerate() {
            if number > 0 {
                sql.push_str(", ");
            }
            argument.write(&mut sql);
        }
        sql.push(')');
        sql
    }

    /// The fence, in a transaction of the user's.
    pub(crate) fn fence(&self) -> String {
        format!("SELECT \"{}\".fence($1, $2, $3)", self.name)
    }

    /// All statements that make it, or bring it up to date.
    pub(crate) fn ddl(&self) -> String {
        let (quoted, literal) = (format!("\"{}\"", self.name), format!("'{}'", self.name));
        DDL.replace("{schema}", &quoted).replace("{name}", &literal).replace("{version}", &VERSION.to_string())
    }

    /// What there is at a server that takes writes. Only looks, as those do who read: who makes it
    /// owns it.
    pub(crate) async fn find(&self, dialled: &Dialled<'_>) -> Result<Found, StoreError> {
        let recovers = dialled.ask("looking whether it takes writes", "SELECT pg_catalog.pg_is_in_recovery()").await?;
        if value(&recovers)? {
            let why = "is a standby, which takes no writes; name all servers, and the primary is found";
            return Err(StoreError::Unavailable {
                what: format!("{} {why}", dialled.named("the server")),
                source: None,
            });
        }
        self.look(dialled).await
    }

    /// Which store it is, if it is there.
    pub(crate) async fn find_id(&self, dialled: &Dialled<'_>) -> Result<Option<String>, StoreError> {
        Ok(match self.look(dialled).await? {
            Found::Ready { id } | Found::Older { id, .. } => Some(id),
            Found::Missing => None,
        })
    }

    async fn look(&self, dialled: &Dialled<'_>) -> Result<Found, StoreError> {
        let sql = format!(
            "SELECT pg_catalog.pg_get_userbyid(n.nspowner) AS owner, EXISTS (SELECT FROM pg_catalog.pg_proc p \
             WHERE p.pronamespace = n.oid AND p.proname = 'about' AND p.pronargs = 0 \
             AND p.proargnames @> ARRAY['id', 'version', 'oldest_library']) AS is_ours, \
             (EXISTS (SELECT FROM pg_catalog.pg_class c WHERE c.relnamespace = n.oid) \
             OR EXISTS (SELECT FROM pg_catalog.pg_proc p WHERE p.pronamespace = n.oid)) \
             AND NOT EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid \
             WHERE c.relnamespace = n.oid AND c.relname = 'store' AND a.attname = 'oldest_library') AS is_of_others \
             FROM pg_catalog.pg_namespace n WHERE n.nspname = '{}'",
            self.name
        );
        let rows = dialled.ask("looking for the schema", &sql).await?;
        let Some(row) = rows.first() else { return Ok(Found::Missing) };
        if !column::<bool>(row, "is_ours")? {
            if column(row, "is_of_others")? {
                let name = dialled.named(&format!("the schema {}", self.name));
                let what = format!("{name} holds something else, and no elections: name one of its own, ?schema=NAME");
                return Err(StoreError::Misuse { what });
            }
            return Ok(Found::Missing);
        }
        let About { id, version, oldest_library } = self.read_about(dialled).await?;
        if oldest_library > VERSION {
            let schema = dialled.named(&format!("the schema {}", self.name));
            let what = format!(
                "{schema} has version {version}, which this library, with version {VERSION}, is too old for: update it"
            );
            return Err(StoreError::Misuse { what });
        }
        if version < VERSION {
            return Ok(Found::Older { id, version, owner: column::<&str>(row, "owner")?.to_owned() });
        }
        Ok(Found::Ready { id })
    }

    /// What those say who can read nothing, since it is missing.
    pub(crate) fn missing(&self, connector: &dyn Connector) -> StoreError {
        let name = named(&format!("the schema {}", self.name), connector);
        StoreError::Missing { what: format!("{name} is not there, and the first candidate makes it") }
    }

    /// What those say who cannot read what an older library has made.
    pub(crate) fn too_old(&self, what: &str, version: i64, owner: &str) -> StoreError {
        let name = &self.name;
        let what = format!(
            "{what}: the schema {name} has version {version}, in which this cannot be read; its owner, {owner}, brings it \
             up to version {VERSION}: with a candidate, or with what `incumbent schema postgres --name {name}` of this \
             version prints"
        );
        StoreError::Misuse { what }
    }

    /// Makes it, or brings it up to date. Under a lock, and only if that is still needed then:
    /// several that begin at once would trip over each other, even with IF NOT EXISTS, and over
    /// those that work already. If it fails, the connection is dropped, and with it the
    /// transaction.
    pub(crate) async fn make(&self, dialled: &Dialled<'_>) -> Result<Found, StoreError> {
        let (client, what) = (dialled.client, dialled.named(&format!("making the schema {}", self.name)));
        let denied = |error: tokio_postgres::Error| match classify(error.into(), Effect::None, &what) {
            StoreError::Denied { source, .. } => StoreError::Denied {
                what: format!("{what}: this role may not; have somebody run what `incumbent schema postgres` prints"),
                source,
            },
            error => error,
        };
        // Between two messages it is idle in its transaction, and a cut leaves nothing locked for
        // long.
        let lock = format!(
            "{BEGIN} SET LOCAL idle_in_transaction_session_timeout = 5000; \
             SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('incumbent schema {}', 0))",
            self.name
        );
        client.batch_execute(&lock).await.map_err(denied)?;
        let mut found = self.look(dialled).await?;
        if !found.is_ready() {
            client.batch_execute(&self.ddl()).await.map_err(denied)?;
            found = self.look(dialled).await?;
        }
        client.batch_execute("COMMIT").await.map_err(denied)?;
        if !found.is_ready() {
            return Err(StoreError::Corrupt { what: format!("{what}: it was made, and is not there") });
        }
        Ok(found)
    }

    async fn read_about(&self, dialled: &Dialled<'_>) -> Result<About, StoreError> {
        let rows = dialled.ask(&format!("reading the schema {}", self.name), &self.call("about", &[])).await?;
        let row = rows.first().ok_or_else(|| {
            let what = dialled.named(&format!("the schema {}", self.name));
            StoreError::Corrupt { what: format!("{what}: the row of its table store cannot be seen") }
        })?;
        Ok(About {
            id: column::<&str>(row, "id")?.to_owned(),
            version: column(row, "version")?,
            oldest_library: column(row, "oldest_library")?,
        })
    }
}

/// A connection that was just made, and to which server: for messages.
pub(crate) struct Dialled<'a> {
    pub(crate) client: &'a Client,
    pub(crate) connector: &'a dyn Connector,
}

impl Dialled<'_> {
    fn named(&self, what: &str) -> String {
        named(what, self.connector)
    }

    async fn ask(&self, what: &str, sql: &str) -> Result<Vec<SimpleQueryRow>, StoreError> {
        let answer = look(self.client, sql).await;
        answer.map_err(|refusal| classify(refusal, Effect::None, &self.named(what)))
    }
}

/// What a connection has found of the schema.
#[derive(Clone, Debug)]
pub(crate) enum Found {
    /// As this library needs it, or newer.
    Ready { id: String },
    /// As an older library has made it: what is only read is mostly there.
    Older { id: String, version: i64, owner: String },
    /// There is none.
    Missing,
}

impl Found {
    pub(crate) fn is_ready(&self) -> bool {
        matches!(self, Found::Ready { .. })
    }
}

/// What the schema says of itself.
struct About {
    id: String,
    version: i64,
    oldest_library: i64,
}

/// What makes the schema, for a database administrator to read and run: the library does the same
/// where it may, and works with rights to call the functions only.
pub fn schema_ddl(schema: &str) -> Result<String, StoreError> {
    let checked = Schema::new(schema)?;
    Ok(format!(
        "-- Elections in the schema {schema}. Run it in one transaction (psql -1 -v ON_ERROR_STOP=1), as a role that owns\n\
         -- it and cannot log in (SET ROLE).\n\
         -- Those who take part need no more than this, again after each update:\n\
         --   GRANT USAGE ON SCHEMA {schema} TO a_role;\n\
         --   GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA {schema} TO a_role;\n\
         -- Those who only write behind its fence:\n\
         --   GRANT USAGE ON SCHEMA {schema} TO a_writer;\n\
         --   GRANT EXECUTE ON FUNCTION {schema}.fence, {schema}.refuse_lower TO a_writer;\n\
         \n{}",
        checked.ddl()
    ))
}

#[cfg(test)]
mod tests {
    use incumbent_store::binary::checksum;

    use super::*;

    /// Where that version is installed already, nothing of the change would ever arrive.
    #[test]
    fn what_makes_the_schema_does_not_change_without_a_new_version() {
        let is = checksum(DDL.bytes());
        assert!(
            is == CHECKSUM,
            "schema.sql has changed: add one to VERSION, unless the version {VERSION} has never left your clone, and \
             then set CHECKSUM to {is:#x}. A database that has version {VERSION} does not get the change otherwise."
        );
    }

    #[test]
    fn a_schema_is_one_of_its_own_with_a_plain_name() {
        for good in ["incumbent", "team_7", "_x"] {
            assert!(schema_ddl(good).unwrap().contains(&format!("\"{good}\".entry")), "{good}");
        }
        let long = "x".repeat(64);
        for bad in ["", "public", "pg_temp", "Team", "a b", "a\"b", "7up", long.as_str()] {
            assert!(matches!(schema_ddl(bad), Err(StoreError::Misuse { .. })), "{bad}");
        }
        for word in ["{schema}", "{name}", "{version}"] {
            assert!(DDL.contains(word) && !schema_ddl("x").unwrap().contains(word), "{word}");
        }
    }
}
