//! What every store must do.

use incumbent_testkit::conformance::Time;

use crate::harness::{Redis, shared};

incumbent_testkit::conformance!(one_server, Time::Real, Redis::on(shared().await));
incumbent_testkit::elections!(elections_on_one_server, Time::Real, Redis::on(shared().await));
