//! Tests of the real command, with real processes on a file store of their own.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that meets something unexpected has failed")]

mod campaigning;
mod claiming;
#[cfg(feature = "faults")]
mod crowd;
mod demo;
mod doctoring;
#[cfg(feature = "etcd")]
mod etcd;
mod health;
mod healthy;
mod heirs;
mod history;
mod hooks;
mod host;
mod leaving;
mod monitoring;
mod operating;
mod peers;
#[cfg(feature = "postgres")]
mod postgres;
mod reading;
mod recovering;
#[cfg(feature = "redis")]
mod redis;
mod running;
mod signalling;
#[cfg(feature = "faults")]
mod split;
mod stonith;
mod succession;
mod terminal;
mod usage;
#[cfg(feature = "zookeeper")]
mod zookeeper;
