//! Which elections there are: a walk through the tree, and the office records.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use incumbent_store::{Effect, ElectionName, StoreError};
use zookeeper_client::{Client, Error};

use crate::dialect::looks_like_an_entry;
use crate::error::{found, reading};
use crate::store::Inner;

/// How many nodes are looked at: below a root that is shared with others there may be any number,
/// and the one who asks does not wait for long.
const MOST_NODES: usize = 30_000;
/// How many are asked for at once.
const AT_ONCE: usize = 64;

const WHAT: &str = "listing the elections";

impl Inner {
    pub(crate) async fn elections(&self, limit: usize) -> Result<Vec<ElectionName>, StoreError> {
        let names = self.on_shared(Effect::None, |client| async move { self.walk(&client).await }).await?;
        Ok(names.into_iter().take(limit).collect())
    }

    async fn walk(&self, client: &Client) -> Result<BTreeSet<ElectionName>, StoreError> {
        client.sync(self.paths.root()).await.map_err(reading("catching up"))?;
        let offices = found(client.list_children(&self.paths.offices()).await, WHAT)?.unwrap_or_default();
        let mut names: BTreeSet<_> = offices.iter().filter_map(|node| self.paths.election_with_office(node)).collect();
        let mut nodes = vec![self.paths.root().to_owned()];
        let mut looked_at = 0;
        while !nodes.is_empty() {
            let some = nodes.split_off(nodes.len().saturating_sub(AT_ONCE));
            looked_at += some.len();
            if looked_at > MOST_NODES {
                let root = self.paths.root();
                let what = format!(
                    "{WHAT}: there are more than {MOST_NODES} nodes below {root}; name the election that is meant"
                );
                return Err(StoreError::Limit { what });
            }
            let asked = some.iter().map(|path| client.list_children(path));
            for (path, children) in some.iter().zip(join_all(asked).await) {
                let children = match children {
                    // Others' nodes below a root that is shared: ours can be read.
                    Err(Error::NoAuth) if path != self.paths.root() => continue,
                    children => found(children, WHAT)?.unwrap_or_default(),
                };
                self.look_at(path, &children, &mut names, &mut nodes);
            }
        }
        Ok(names)
    }

    /// Whether it is an election's, and what is below it.
    fn look_at(&self, path: &str, children: &[String], names: &mut BTreeSet<ElectionName>, nodes: &mut Vec<String>) {
        let (entries, others): (Vec<_>, Vec<_>) = children.iter().partition(|name| looks_like_an_entry(name));
        if entries.iter().any(|name| self.paths.dialect().is_entry(name)) {
            names.extend(self.paths.election_at(path));
        }
        let below = others.into_iter().map(|name| format!("{}/{name}", path.trim_end_matches('/')));
        nodes.extend(below.filter(|path| self.paths.may_hold_elections(path)));
    }
}
