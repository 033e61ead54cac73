//! Who takes a vacant office: the best in line, as the first in line sees it.

use super::fixture::{Fixture, lead};
use crate::conformance::Harness;

/// How many vacancies the one with the highest priority may miss: an heir that does not answer in
/// time does not get the place, and a slow machine is no reason to fail.
const VACANCIES: usize = 20;

/// A priority counts when the office is vacant, and not while somebody leads.
pub async fn a_vacant_office_goes_to_the_highest_priority<H: Harness>(harness: &H) {
    let fixture = Fixture::new(harness).await;
    let stand =
        async |name: &str, priority: i32| fixture.election().await.candidate(name).priority(priority).stand().await;
    if !fixture.has_line().await {
        let refused = stand("a", 1).await.expect_err("there is no line").to_string();
        return assert!(refused.contains("priority") && refused.contains("no line"), "{refused}");
    }
    for _ in 0..VACANCIES {
        let mut leader = stand("leader", 0).await.expect("a place in line");
        let office = lead(&mut leader).await;
        let mut next = stand("next", 1).await.expect("a place in line");
        let mut highest = stand("highest", 5).await.expect("a place in line");
        fixture.until_names(&["leader", "next", "highest"]).await;
        office.check().expect("in office: nobody is moved while somebody leads");
        office.leave().await.expect("certain");
        let gave_way = tokio::select! {
            office = lead(&mut highest) => Some(office),
            _ = lead(&mut next) => None,
        };
        if let Some(office) = gave_way {
            fixture.until_names(&["highest", "next"]).await;
            return office.check().expect("in office");
        }
        if !fixture.store.promises().await.expect("promises").watches {
            // Nobody tells the better one in time that it is asked, and the next one leads.
            return;
        }
        drop((leader, next, highest));
        fixture.until_empty().await;
    }
    panic!("in {VACANCIES} vacancies the first in line never gave way to a better one");
}

/// With nobody better behind it, the first in line takes office.
pub async fn among_equal_priorities_the_line_decides<H: Harness>(harness: &H) {
    let fixture = Fixture::new(harness).await;
    if !fixture.has_line().await {
        return;
    }
    let stand =
        async |name: &str, priority: i32| fixture.election().await.candidate(name).priority(priority).stand().await;
    let mut leader = stand("a", 5).await.expect("a place in line");
    let office = lead(&mut leader).await;
    let mut next = stand("b", 3).await.expect("a place in line");
    let _equal = stand("c", 3).await.expect("a place in line");
    let _lower = stand("d", -1).await.expect("a place in line");
    fixture.until_names(&["a", "b", "c", "d"]).await;
    office.leave().await.expect("certain");
    lead(&mut next).await.check().expect("in office");
}
