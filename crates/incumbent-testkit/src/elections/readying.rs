//! What an heir does before it takes over, and what becomes of it.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use incumbent::store::Decline;
use incumbent::{Candidate, LossReason, OperatorError, Refusal, TransferRefused};
use tokio::sync::{Semaphore, mpsc};

use super::fixture::{Fixture, WITHIN, lead};
use crate::conformance::Harness;

/// Says that it was dropped.
struct Undone(mpsc::UnboundedSender<()>);

impl Drop for Undone {
    fn drop(&mut self) {
        // The test may be over.
        let _ = self.0.send(());
    }
}

async fn candidate(fixture: &Fixture<'_, impl Harness>, name: &str) -> Candidate {
    fixture.election().await.candidate(name)
}

/// Where nobody is asked to get ready, a candidate that would is refused.
async fn has_heirs(fixture: &Fixture<'_, impl Harness>) -> bool {
    let has_heirs = fixture.has_line().await;
    if !has_heirs {
        let hook = |_| async { Ok::<_, String>(()) };
        let refused = candidate(fixture, "a").await.ready_hook(hook).stand().await.expect_err("there is no line");
        assert!(refused.to_string().contains("nobody is asked to get ready here"), "{refused}");
    }
    has_heirs
}

/// The leader leads on until its heir is ready.
pub async fn an_heir_gets_ready_while_the_leader_leads_on(harness: &impl Harness) {
    let fixture = Fixture::new(harness).await;
    if !has_heirs(&fixture).await {
        return;
    }
    let (_leader, office) = fixture.line_of(&["a"]).await;
    let (begun, done) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (begins, finish) = (begun.clone(), done.clone());
    let heir = candidate(&fixture, "b").await.ready_hook(move |_| {
        let (begins, finish) = (begins.clone(), finish.clone());
        async move {
            begins.add_permits(1);
            finish.acquire().await.map(|_| ())
        }
    });
    let mut heir = heir.stand().await.expect("a place in line");
    let operator = fixture.election().await.operator();
    let transfer = tokio::spawn(async move { operator.transfer("b", WITHIN).await });
    let _begun = begun.acquire().await.expect("it gets ready");
    fixture
        .until("its word that it is getting ready", |line| {
            line.entries.get(1).is_some_and(|heir| heir.merit.preparation.is_some() && heir.ready.is_none())
        })
        .await;
    assert!(!office.term().is_stopping(), "it leads on");
    done.add_permits(1);
    assert_eq!(office.stopping().await.reason(), LossReason::Transferred);
    office.resign().await.expect("certain");
    let next = lead(&mut heir).await;
    assert!(next.was_ready());
    transfer.await.expect("no panic").expect("transferred");
    drop(next);
}

/// It is refused at once, with the reason, and asked anew with the next request.
pub async fn an_heir_that_declines_leaves_the_office_where_it_is(harness: &impl Harness) {
    let fixture = Fixture::new(harness).await;
    if !has_heirs(&fixture).await {
        return;
    }
    let (_leader, office) = fixture.line_of(&["a"]).await;
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let heir = candidate(&fixture, "b").await.ready_hook(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        async { Err::<(), _>("the cache is cold") }
    });
    let _heir = heir.stand().await.expect("a place in line");
    let operator = fixture.election().await.operator();
    for times in 1..=2 {
        let refused = operator.transfer("b", WITHIN).await;
        let declined = Refusal::HeirDeclined(Decline::Failed);
        assert!(
            matches!(&refused, Err(OperatorError::Refused(TransferRefused::Leader(why))) if *why == declined),
            "{refused:?}"
        );
        assert_eq!(asked.load(Ordering::Relaxed), times, "once for each request");
    }
    office.check().expect("in office");
    assert!(!office.term().is_stopping());
}

/// What it has got ready is undone when it is called off, and not while it leads.
pub async fn an_heir_undoes_what_it_did_when_it_is_called_off(harness: &impl Harness) {
    let fixture = Fixture::new(harness).await;
    if !has_heirs(&fixture).await {
        return;
    }
    let (_leader, office) = fixture.line_of(&["a"]).await;
    let (sender, mut undone) = mpsc::unbounded_channel();
    let begun = Arc::new(Semaphore::new(0));
    let begins = begun.clone();
    let heir = candidate(&fixture, "b").await.ready_hook(move |_| {
        let (undone, begins) = (Undone(sender.clone()), begins.clone());
        async move {
            begins.add_permits(1);
            pending::<()>().await;
            Ok::<_, String>(undone)
        }
    });
    let mut heir = heir.stand().await.expect("a place in line");
    let operator = fixture.election().await.operator();
    let asks = operator.clone();
    let transfer = tokio::spawn(async move { asks.transfer("b", WITHIN).await });
    begun.acquire().await.expect("it gets ready").forget();
    operator.call_off(WITHIN).await.expect("called off");
    undone.recv().await.expect("undone");
    let called_off = transfer.await.expect("no panic");
    assert!(matches!(called_off, Err(OperatorError::CalledOff)), "{called_off:?}");
    office.check().expect("in office");

    // The leader is gone while it gets ready: it takes office, and does not wait.
    let transfer = tokio::spawn(async move { operator.transfer("b", WITHIN).await });
    begun.acquire().await.expect("it gets ready").forget();
    office.leave().await.expect("certain");
    let office = lead(&mut heir).await;
    assert!(!office.was_ready());
    transfer.await.expect("no panic").expect("it leads, as was asked");
    assert!(undone.try_recv().is_err(), "not while it leads");
    office.leave().await.expect("certain");
    undone.recv().await.expect("undone once its term is over");
}
