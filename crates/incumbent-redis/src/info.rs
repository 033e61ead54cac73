//! What a server says of its own configuration, and what can be promised on it.

use std::collections::HashMap;

use incumbent_store::StoreError;

/// Whether a server that writes every change to its disk leaves that out while it writes its file
/// anew or saves a snapshot.
pub(crate) const NO_FSYNC_ON_REWRITE: &str = "no-appendfsync-on-rewrite";

/// A server that evicts keys at will takes the line, the tokens and the identity with them.
pub(crate) fn refuse_eviction(memory: &str) -> Result<(), StoreError> {
    match field(memory, "maxmemory_policy") {
        Some(policy) if policy.starts_with("allkeys") => Err(StoreError::Misuse {
            what: format!(
                "the server evicts any key when its memory is full (maxmemory-policy {policy}), elections among them: \
                 set it to noeviction or a volatile-* policy, or add eviction=allow to the URL to take the risk"
            ),
        }),
        _ => Ok(()),
    }
}

/// A field of what `INFO` answers.
pub(crate) fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// What the promises depend on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Server {
    /// `None`: it could not be read.
    pub(crate) config: Option<HashMap<String, String>>,
    /// Those that are connected, and one at least where another server may take over. There may be
    /// more: one that is away is not counted by anybody, and may take over all the same.
    pub(crate) replicas: u64,
    pub(crate) is_cluster: bool,
    pub(crate) appends: bool,
    pub(crate) evicts: Option<String>,
    /// How many replicas have to confirm a step.
    pub(crate) wait: Option<u32>,
    /// Whether it says how many replicas it has, that it is in no cluster, and what it evicts.
    pub(crate) is_plain: bool,
    /// The user has no right on the store's channels.
    pub(crate) is_mute: bool,
}

impl Server {
    /// From what `INFO` and `CONFIG GET` answer, and the option `wait`.
    pub(crate) fn read(info: &str, config: Option<HashMap<String, String>>, wait: Option<u32>) -> Server {
        let is = |name, value| field(info, name) == Some(value);
        let policy = field(info, "maxmemory_policy").filter(|policy| policy.starts_with("allkeys"));
        let is_cluster = is("cluster_enabled", "1");
        let replicas: Option<u64> = field(info, "connected_slaves").and_then(|count| count.parse().ok());
        let says_what_it_evicts = field(info, "maxmemory_policy").is_some_and(|policy| !policy.is_empty());
        let is_plain = replicas.is_some() && is("cluster_enabled", "0") && says_what_it_evicts;
        let replicas = replicas.unwrap_or(0);
        Server {
            config,
            is_plain,
            replicas: if is_cluster { replicas.max(1) } else { replicas },
            is_cluster,
            appends: is("aof_enabled", "1"),
            evicts: policy.map(str::to_owned),
            wait,
            is_mute: false,
        }
    }

    fn setting(&self, name: &str) -> Option<&str> {
        self.config.as_ref()?.get(name).map(String::as_str)
    }

    /// Nothing that was answered can be lost: the one case in which tokens never go back.
    pub(crate) fn keeps_everything(&self) -> bool {
        let alone = self.is_plain && self.replicas == 0 && self.evicts.is_none();
        let always = self.setting("appendfsync") == Some("always") && !self.pauses_fsync();
        alone && self.appends && always
    }

    fn pauses_fsync(&self) -> bool {
        self.setting(NO_FSYNC_ON_REWRITE) == Some("yes")
    }

    /// What can be lost, and what to set against it, one sentence each.
    pub(crate) fn caveats(&self) -> Vec<String> {
        let mut caveats = vec![
            "A wall clock of the server that jumps ahead may cost a session that does not renew up to half the shortest \
             TTL."
                .to_owned(),
            "After a restart or a failover of the server, when its first replica connects (a backup with redis-cli --rdb \
             is one) and when the last has been gone for an hour, nobody new takes office before the longest TTL that \
             it knows to have been granted has passed, nor before the candidate's own has: what was lost cannot be told. A forgotten leader whose TTL is \
             longer than both may lead beside the next one until that TTL has passed: give all candidates of an \
             election the same TTL. Tokens grow all the same, as far as the servers' wall clocks agree."
                .to_owned(),
            "A leader that died while nobody asked for anything is shown to the first who asks for up to half its TTL \
             (its TTL less half the shortest), and keeps `run --try` out: it may be that the server's clock has jumped."
                .to_owned(),
            "An old copy of a key of the store that is put back into a running server (RESTORE) founds it anew if it is \
             the counter's (m). With that of another no token comes again, but orders may be undone in silence (key o); \
             a leader may be forgotten (s, l, e): another may lead beside it until its next renewal, which tells it; \
             or be told and shown all the same (p), and nobody leads until it is deposed or its session ends. Copies of \
             the counter and of the entries, put back together, are noticed only when one asks who knew the newer ones, \
             and until then tokens may come again: delete all keys of the store after it, and be sure that no leader \
             runs."
                .to_owned(),
            "A store any of whose keys is deleted (DEL, FLUSHALL, eviction) is founded anew (store_reset), and nobody \
             takes office before the longest TTL that is left in the others has passed, nor before the candidate's own \
             has. If all are deleted (FLUSHALL), that begins only once one has come who knew the old store: a candidate \
             that is started and comes first may lead beside the old leader for a TTL. A fence lets in no more than one \
             of them. What the server writes to its disk changes none of this."
                .to_owned(),
            "While the server's memory is full, leaders stay in office, and everybody may leave; nobody comes, no order \
             is written, and no fence is raised there."
                .to_owned(),
        ];
        if self.is_mute {
            caveats.push(
                "This user has no right on the store's channels: nobody is told of what it does, nor is it told of \
                 anything. Those who wait look now and then, and a vacancy lasts as much longer: grant it &{incumbent}* \
                 (or the prefix that is used)."
                    .to_owned(),
            );
        }
        if let Some(policy) = &self.evicts {
            caveats.push(format!(
                "The server evicts any key when its memory is full ({policy}): leaders may be lost, and two may lead."
            ));
        }
        if !self.keeps_everything() {
            caveats.push(self.loses());
        }
        if self.replicas > 0 || self.wait.is_some() {
            caveats.push(self.failover());
        }
        if self.is_cluster {
            caveats.push(
                "A member of the cluster that is cut off from the others goes on answering for cluster-node-timeout, \
                 and its replica may have taken over by then. A slot that moves to another member counts as a failover."
                    .to_owned(),
            );
        }
        caveats
    }

    fn loses(&self) -> String {
        match (self.appends, self.setting("appendfsync")) {
            _ if self.config.is_none() => {
                "The server does not let us read its configuration (CONFIG GET): the weakest \
                is assumed."
                    .to_owned()
            }
            (true, Some("always")) if self.pauses_fsync() => {
                "A crash of the server's host loses what was written while the server wrote its file anew \
                (no-appendfsync-on-rewrite yes): set it to no."
                    .to_owned()
            }
            (true, Some("always")) => "Each write is on the server's disk before it is answered, but a replica that \
                takes over may lack the newest."
                .to_owned(),
            (true, Some("everysec")) => "A crash of the server's host loses up to a second of writes (appendfsync \
                everysec): set appendfsync to always."
                .to_owned(),
            (true, _) => {
                "A crash of the server's host loses what the system has not written yet (appendfsync no): set \
                appendfsync to always."
                    .to_owned()
            }
            (false, _) if self.setting("save").is_some_and(|save| !save.is_empty()) => "A restart of the server loses \
                everything since its last snapshot: set appendonly to yes and appendfsync to always."
                .to_owned(),
            (false, _) => {
                "The server writes nothing to a disk: a restart deletes all keys of the store, which is founded anew. Set \
                 appendonly to yes and appendfsync to always."
                    .to_owned()
            }
        }
    }

    fn failover(&self) -> String {
        match self.wait.map(u64::from) {
            Some(wait) if wait >= self.replicas => {
                return format!(
                    "A step counts only when {} it in memory (wait). If no more than those can take \
                     over, a failover loses none, and while one of them is down there are no elections. One more, \
                     connected or not, may take over without it.",
                    replicas(wait, "has", "have")
                );
            }
            Some(wait) => {
                return format!(
                    "Of {0} replicas {wait} {1} a step (wait): another one may take over without it. Set wait to {0}, \
                     or to the number of all if some are not connected now.",
                    self.replicas,
                    if wait == 1 { "confirms" } else { "confirm" }
                );
            }
            None => {}
        }
        let waited_for = self.setting("min-replicas-to-write").and_then(|count| count.parse().ok()).unwrap_or(0);
        if waited_for >= self.replicas {
            format!(
                "Writes stop unless {} at most {} s behind (min-replicas-to-write): keep the time \
                 after which a failover begins two seconds above that. If more than those can take over, one of the \
                 others may while the primary that was replaced goes on, and two may lead for as long: set it to the \
                 number of all replicas, connected or not.",
                replicas(waited_for, "is", "are"),
                self.setting("min-replicas-max-lag").unwrap_or("10")
            )
        } else {
            format!(
                "A primary that was replaced goes on answering until it is told, and two may lead for as long: set \
                 min-replicas-to-write to {}, or to the number of all replicas if some are not connected now, and \
                 min-replicas-max-lag to a few seconds.",
                self.replicas
            )
        }
    }
}

/// `1 replica has`, `2 replicas have`.
fn replicas(count: u64, one: &str, several: &str) -> String {
    if count == 1 { format!("1 replica {one}") } else { format!("{count} replicas {several}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALONE: &str = "# Memory\r\nmaxmemory_policy:noeviction\r\n# Persistence\r\naof_enabled:1\r\n\
        # Replication\r\nrole:master\r\nconnected_slaves:0\r\n# Cluster\r\ncluster_enabled:0\r\n";

    fn config(pairs: &[(&str, &str)]) -> Option<HashMap<String, String>> {
        Some(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn only_a_server_that_is_alone_and_writes_before_it_answers_keeps_everything() {
        let always = || config(&[("appendfsync", "always")]);
        assert!(Server::read(ALONE, always(), None).keeps_everything());
        assert!(!Server::read(ALONE, config(&[("appendfsync", "everysec")]), None).keeps_everything());
        assert!(!Server::read(ALONE, None, None).keeps_everything(), "what cannot be read is not believed");
        for (was, is) in [
            ("connected_slaves:0", "connected_slaves:1"),
            ("aof_enabled:1", "aof_enabled:0"),
            ("cluster_enabled:0", "cluster_enabled:1"),
            ("policy:noeviction", "policy:allkeys-lru"),
        ] {
            assert!(!Server::read(&ALONE.replace(was, is), always(), None).keeps_everything(), "{is}");
        }
    }

    #[test]
    fn what_can_be_lost_is_said_with_what_to_set() {
        let said = |info: &str, config| Server::read(info, config, None).caveats().join(" ");
        assert!(said(ALONE, None).contains("CONFIG GET"));
        assert!(said(ALONE, config(&[("appendfsync", "everysec")])).contains("up to a second"));
        let unwritten = ALONE.replace("aof_enabled:1", "aof_enabled:0");
        assert!(said(&unwritten, config(&[("save", "")])).contains("a restart deletes all keys"));
        assert!(said(&unwritten, config(&[("save", "3600 1")])).contains("snapshot"));
        let replicated = ALONE.replace("connected_slaves:0", "connected_slaves:2");
        let lag = |count| {
            config(&[("appendfsync", "always"), ("min-replicas-to-write", count), ("min-replicas-max-lag", "3")])
        };
        assert!(said(&replicated, lag("1")).contains("set min-replicas-to-write to 2"));
        assert!(said(&replicated, lag("2")).contains("unless 2 replicas are at most 3 s behind"));
        let one = ALONE.replace("connected_slaves:0", "connected_slaves:1");
        assert!(said(&one, lag("1")).contains("unless 1 replica is at most 3 s behind"));
        let waits = Server::read(&one, lag("0"), Some(1)).caveats().join(" ");
        assert!(waits.contains("when 1 replica has it") && !waits.contains("1 replicas"), "{waits}");
        // Those that are connected are not all that may take over.
        assert!(said(&replicated, lag("2")).contains("all replicas, connected or not"));
        assert!(said(&replicated, lag("1")).contains("all replicas if some are not connected"));
        let waiting = |wait| Server::read(&replicated, lag("0"), Some(wait)).caveats().join(" ");
        assert!(waiting(1).contains("Set wait to 2"), "{}", waiting(1));
        assert!(waiting(2).contains("If no more than those can take over, a failover loses none"), "{}", waiting(2));
        assert!(waiting(2).contains("connected or not, may take over without it"), "{}", waiting(2));
        // Where others may take over, whether or not they are there now.
        let cluster = said(&ALONE.replace("cluster_enabled:0", "cluster_enabled:1"), lag("0"));
        assert!(
            cluster.contains("cluster-node-timeout") && cluster.contains("min-replicas-to-write to 1"),
            "{cluster}"
        );
        assert!(!said(ALONE, lag("0")).contains("cluster"));
        assert!(!said(ALONE, config(&[("appendfsync", "always")])).contains("a restart deletes"));
        let pauses = config(&[("appendfsync", "always"), (NO_FSYNC_ON_REWRITE, "yes")]);
        assert!(!Server::read(ALONE, pauses.clone(), None).keeps_everything());
        assert!(said(ALONE, pauses).contains("no-appendfsync-on-rewrite yes"));
    }

    #[test]
    fn a_server_that_evicts_any_key_is_refused() {
        assert!(refuse_eviction("maxmemory_policy:volatile-lru\r\n").is_ok());
        let refused = refuse_eviction("maxmemory_policy:allkeys-lru\r\n").unwrap_err().to_string();
        assert!(refused.contains("allkeys-lru") && refused.contains("eviction=allow"), "{refused}");
    }
}
