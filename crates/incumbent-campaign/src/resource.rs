//! The resources that leaders write to: one behind a fence, one that takes everything. They live
//! in the process of the campaign, and remember what they were asked for.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use incumbent_store::fence::{FenceError, FencingToken, Mark};
use incumbent_store::{BootClock, Clock, lock};
use incumbent_testkit::judge::Write;
use incumbent_testkit::resource::{RAISE, serve};

/// Both resources, at one address.
#[derive(Clone, Debug)]
pub struct Resources {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    mark: Option<Mark>,
    writes: Vec<Write>,
    unfenced: Unfenced,
}

/// What the resource without a fence was asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unfenced {
    /// All that it took.
    pub writes: u64,
    /// Of these, those that came after one with a higher token.
    pub stale: u64,
    highest: u64,
}

impl Resources {
    /// Serves until the process ends.
    pub fn serve() -> Resources {
        let state = Arc::<Mutex<State>>::default();
        let serving = state.clone();
        let address = serve(move |what, token| lock(&serving).answer(what, token));
        Resources { address, state }
    }

    /// Where they are.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What the fenced one was asked for, so far.
    pub fn writes(&self) -> Vec<Write> {
        lock(&self.state).writes.clone()
    }

    /// What the other one was asked for, so far.
    pub fn unfenced(&self) -> Unfenced {
        lock(&self.state).unfenced
    }
}

impl State {
    fn answer(&mut self, what: &str, token: &FencingToken) -> Result<(), FenceError> {
        match what {
            RAISE | "write" => {
                let admitted = Mark::admit(self.mark.as_ref(), token);
                if what == "write" {
                    let (at, accepted) = (BootClock.now().as_nanos(), admitted.is_ok());
                    self.writes.push(Write { at, token: token.get(), accepted });
                }
                self.mark = Some(admitted?);
            }
            "unfenced" => {
                self.unfenced.writes += 1;
                self.unfenced.stale += u64::from(token.get() < self.unfenced.highest);
                self.unfenced.highest = self.unfenced.highest.max(token.get());
            }
            _ => panic!("the resources were asked for {what:?}"),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use incumbent_core::{ElectionName, StoreId, Token};
    use incumbent_store::fence::Fence;
    use incumbent_testkit::resource::{Connection, ResourceFence};

    use super::*;

    #[tokio::test]
    async fn the_fenced_resource_refuses_what_is_older_and_the_other_one_counts_it() {
        let resources = Resources::serve();
        let token = |number| FencingToken::new(Token::new(number).unwrap(), StoreId::new("a-store"));
        let fence = ResourceFence(resources.address());
        let election = ElectionName::new("campaign").unwrap();
        let mut connection = Connection::open(resources.address()).await.unwrap();
        assert_eq!(connection.ask("write", &token(1)).await.unwrap(), "done");
        fence.raise(&election, token(2)).await.unwrap();
        assert_eq!(connection.ask("write", &token(1)).await.unwrap(), "stale 2");
        assert!(matches!(fence.raise(&election, token(1)).await, Err(FenceError::Stale { .. })));
        assert_eq!(resources.writes().iter().map(|write| write.accepted).collect::<Vec<_>>(), [true, false]);
        for number in [2, 1, 2] {
            assert_eq!(connection.ask("unfenced", &token(number)).await.unwrap(), "done");
        }
        assert_eq!((resources.unfenced().writes, resources.unfenced().stale), (3, 1));
    }
}
